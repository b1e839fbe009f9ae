(* The lemmas that the certificates of closedform use. Everything here is proved.

   A certificate defines each term of its statement, and states facts about them. A number is a real
   number; an integer symbol is an integer, cast. A relation has a literal: a polynomial above 0,
   at least 0, equal to 0, or not. Intervals have rational ends, and are computed by the kernel.
   The tactic `interval` always has a precision: without it, it computes with the floats of the
   machine, whose operations are axioms. *)

From Coq Require Import Reals Lra Lia ZArith QArith Qreals List.
From Interval Require Import Tactic.
Import ListNotations.
Open Scope R_scope.

(* --- The functions of the language ---------------------------------------------------------- *)

Definition cospi (u : R) : R := cos (PI * u).
Definition sinpi (u : R) : R := sin (PI * u).
Definition floor (u : R) : R := IZR (Int_part u).
Definition sgn (u : R) : R := if Rlt_dec 0 u then 1 else if Rlt_dec u 0 then IZR (-1) else 0.
Definition table (entries : list R) (u : R) : R := nth (Z.to_nat (Int_part u)) entries 0.

(* A power: of a positive base by the exponential, else of a whole exponent. *)
Definition pw (b e : R) : R :=
  if Rlt_dec 0 b then Rpower b e
  else if Req_EM_T (IZR (Int_part e)) e then powerRZ b (Int_part e) else 0.

(* Conditions are decided. *)
Definition dec (P : Prop) := {P} + {~ P}.
Definition dec_and {P Q} (p : dec P) (q : dec Q) : dec (P /\ Q).
Proof. destruct p, q; [left; tauto | right; tauto ..]. Defined.
Definition dec_or {P Q} (p : dec P) (q : dec Q) : dec (P \/ Q).
Proof. destruct p, q; [left; tauto .. | right; tauto]. Defined.
Definition dec_not {P} (p : dec P) : dec (~ P).
Proof. destruct p; [right; tauto | left; tauto]. Defined.
Definition dec_true : dec True := left I.
Definition dec_false : dec False := right (fun h => h).

Lemma ite_true {P : Prop} (d : dec P) (x y : R) : P -> (if d then x else y) = x.
Proof. destruct d; tauto. Qed.
Lemma ite_false {P : Prop} (d : dec P) (x y : R) : ~ P -> (if d then x else y) = y.
Proof. destruct d; tauto. Qed.
Lemma ite_cong {P Q : Prop} (d : dec P) (e : dec Q) (x y z w : R) :
  (P <-> Q) -> x = z -> y = w -> (if d then x else y) = (if e then z else w).
Proof. intros H -> ->. destruct d, e; tauto. Qed.

Lemma lt_cong {a b c d : R} : a = c -> b = d -> (a < b <-> c < d).
Proof. intros -> ->. tauto. Qed.
Lemma le_cong {a b c d : R} : a = c -> b = d -> (a <= b <-> c <= d).
Proof. intros -> ->. tauto. Qed.
Lemma eq_cong {a b c d : R} : a = c -> b = d -> (a = b <-> c = d).
Proof. intros -> ->. tauto. Qed.
Lemma and_cong {P Q S T : Prop} : (P <-> S) -> (Q <-> T) -> (P /\ Q <-> S /\ T).
Proof. tauto. Qed.
Lemma or_cong {P Q S T : Prop} : (P <-> S) -> (Q <-> T) -> (P \/ Q <-> S \/ T).
Proof. tauto. Qed.
Lemma not_cong {P Q : Prop} : (P <-> Q) -> (~ P <-> ~ Q).
Proof. tauto. Qed.

(* A truth or its negation, pushed inwards; a truth with its negations pushed inwards. *)
Ltac decide_relations :=
  repeat match goal with
  | |- context [?a < ?b] =>
      lazymatch goal with H : a < b |- _ => fail | H : b <= a |- _ => fail | _ => idtac end;
      destruct (Rlt_le_dec a b)
  | |- context [?a <= ?b] =>
      lazymatch goal with H : a <= b |- _ => fail | H : b < a |- _ => fail | _ => idtac end;
      destruct (Rle_lt_dec a b)
  | |- context [?a = ?b :> R] =>
      lazymatch goal with H : a = b |- _ => fail | H : a <> b |- _ => fail | _ => idtac end;
      destruct (Req_dec a b)
  end.
Ltac drop_facts := repeat match goal with H : ?P |- _ => match type of P with Prop => clear H end end.
Ltac dichotomy := drop_facts; decide_relations; tauto.
Ltac push_negations H := revert H; drop_facts; decide_relations;
  repeat match goal with
  | H : ?a < ?b |- _ => apply Rlt_not_le in H as ?; revert H
  | H : ?a <= ?b |- _ => apply Rle_not_lt in H as ?; revert H
  end; tauto.

(* --- Polynomials ----------------------------------------------------------------------------- *)

Ltac polynomials := drop_facts; first [lra | field].

Lemma above_of {a b p : R} : b - a = p -> a < b -> 0 < p.
Proof. lra. Qed.
Lemma least_of {a b p : R} : b - a = p -> a <= b -> 0 <= p.
Proof. lra. Qed.
Lemma equal_of {a b p : R} : b - a = p -> a = b -> p = 0.
Proof. lra. Qed.
Lemma differ_of {a b p : R} : b - a = p -> a <> b -> p <> 0.
Proof. intros H G E. apply G. lra. Qed.
Lemma of_above {a b p : R} : b - a = p -> 0 < p -> a < b.
Proof. lra. Qed.
Lemma of_least {a b p : R} : b - a = p -> 0 <= p -> a <= b.
Proof. lra. Qed.
Lemma of_equal {a b p : R} : b - a = p -> p = 0 -> a = b.
Proof. lra. Qed.
Lemma of_differ {a b p : R} : b - a = p -> p <> 0 -> a <> b.
Proof. intros H G E. apply G. lra. Qed.

Lemma pos_num (p q : positive) : 0 < IZR (Zpos p) / IZR (Zpos q).
Proof. apply Rdiv_lt_0_compat; apply IZR_lt; reflexivity. Qed.
Lemma pos_whole (p : positive) : 0 < IZR (Zpos p).
Proof. apply IZR_lt. reflexivity. Qed.

Lemma weaken_above {p q c : R} : 0 < c -> q = c * p -> 0 < p -> 0 < q.
Proof. intros H -> G. now apply Rmult_lt_0_compat. Qed.
Lemma weaken_least {p q c : R} : 0 < c -> q = c * p -> 0 <= p -> 0 <= q.
Proof. intros H -> G. apply Rmult_le_pos; lra. Qed.
Lemma weaken_above_least {p q c : R} : 0 < c -> q = c * p -> 0 < p -> 0 <= q.
Proof. intros H -> G. apply Rmult_le_pos; lra. Qed.
Lemma weaken_above_differ {p q c : R} : c <> 0 -> q = c * p -> 0 < p -> q <> 0.
Proof. intros H -> G. apply Rmult_integral_contrapositive; split; lra. Qed.
Lemma weaken_equal {p q c : R} : q = c * p -> p = 0 -> q = 0.
Proof. intros -> ->. ring. Qed.
Lemma weaken_equal_least {p q c : R} : q = c * p -> p = 0 -> 0 <= q.
Proof. intros -> ->. lra. Qed.
Lemma weaken_differ {p q c : R} : c <> 0 -> q = c * p -> p <> 0 -> q <> 0.
Proof. intros H -> G. now apply Rmult_integral_contrapositive. Qed.

(* Sums of products. *)
Lemma square_least (p : R) : 0 <= p * p.
Proof. apply Rle_0_sqr. Qed.
Lemma mul_aa {p q : R} : 0 < p -> 0 < q -> 0 < p * q.
Proof. apply Rmult_lt_0_compat. Qed.
Lemma mul_ll {p q : R} : 0 <= p -> 0 <= q -> 0 <= p * q.
Proof. apply Rmult_le_pos. Qed.
Lemma mul_al {p q : R} : 0 < p -> 0 <= q -> 0 <= p * q.
Proof. intros. apply Rmult_le_pos; lra. Qed.
Lemma mul_la {p q : R} : 0 <= p -> 0 < q -> 0 <= p * q.
Proof. intros. apply Rmult_le_pos; lra. Qed.
Lemma add_aa {p q : R} : 0 < p -> 0 < q -> 0 < p + q.
Proof. lra. Qed.
Lemma add_ll {p q : R} : 0 <= p -> 0 <= q -> 0 <= p + q.
Proof. lra. Qed.
Lemma add_al {p q : R} : 0 < p -> 0 <= q -> 0 < p + q.
Proof. lra. Qed.
Lemma add_la {p q : R} : 0 <= p -> 0 < q -> 0 < p + q.
Proof. lra. Qed.
Lemma add_ae {p q : R} (f : R) : 0 < p -> q = 0 -> 0 < p + f * q.
Proof. intros H ->. lra. Qed.
Lemma no_sum {p : R} : 0 < p -> p = 0 -> False.
Proof. lra. Qed.

(* A relation times a power of a divisor. *)
Lemma clear_above {p q d : R} (k : nat) : 0 < d -> q = p * d ^ k -> 0 < p -> 0 < q.
Proof. intros H -> G. apply Rmult_lt_0_compat; [| apply pow_lt]; assumption. Qed.
Lemma clear_least {p q d : R} (k : nat) : 0 < d -> q = p * d ^ k -> 0 <= p -> 0 <= q.
Proof. intros H -> G. apply Rmult_le_pos; [| apply pow_le]; lra. Qed.
Lemma clear_above_even {p q d : R} (k : nat) :
  d <> 0 -> q = p * (d ^ k * d ^ k) -> 0 < p -> 0 < q.
Proof.
  intros H -> G. apply Rmult_lt_0_compat; [assumption |]. apply Rsqr_pos_lt. now apply pow_nonzero.
Qed.
Lemma clear_least_even {p q d : R} (k : nat) : q = p * (d ^ k * d ^ k) -> 0 <= p -> 0 <= q.
Proof. intros -> G. apply Rmult_le_pos; [assumption | apply Rle_0_sqr]. Qed.
Lemma clear_equal {p q d : R} (k : nat) : q = p * d ^ k -> p = 0 -> q = 0.
Proof. intros -> ->. ring. Qed.
Lemma clear_differ {p q d : R} (k : nat) : d <> 0 -> q = p * d ^ k -> p <> 0 -> q <> 0.
Proof.
  intros H -> G. apply Rmult_integral_contrapositive; split; [assumption |]. now apply pow_nonzero.
Qed.
Lemma opposite_above {d e : R} : e = - d -> d < 0 -> 0 < e.
Proof. lra. Qed.

(* --- Integers -------------------------------------------------------------------------------- *)

Definition is_int (x : R) : Prop := exists n : Z, x = IZR n.
Lemma int_whole (n : Z) : is_int (IZR n).
Proof. now exists n. Qed.
Lemma int_add {x y : R} : is_int x -> is_int y -> is_int (x + y).
Proof. intros [n ->] [m ->]. exists (n + m)%Z. now rewrite plus_IZR. Qed.
Lemma int_mul {x y : R} : is_int x -> is_int y -> is_int (x * y).
Proof. intros [n ->] [m ->]. exists (n * m)%Z. now rewrite mult_IZR. Qed.
Lemma int_pow {x : R} (k : nat) : is_int x -> is_int (x ^ k).
Proof. intros H. induction k; simpl; [now exists 1%Z | now apply int_mul]. Qed.
Lemma int_floor (u : R) : is_int (floor u).
Proof. now exists (Int_part u). Qed.
Lemma int_sgn (u : R) : is_int (sgn u).
Proof.
  unfold sgn. destruct (Rlt_dec 0 u); [now exists 1%Z |].
  destruct (Rlt_dec u 0); [now exists (-1)%Z | now exists 0%Z].
Qed.
Lemma int_min {x y : R} : is_int x -> is_int y -> is_int (Rmin x y).
Proof. intros. unfold Rmin. now destruct (Rle_dec x y). Qed.
Lemma int_max {x y : R} : is_int x -> is_int y -> is_int (Rmax x y).
Proof. intros. unfold Rmax. now destruct (Rle_dec x y). Qed.
Lemma int_abs {x : R} : is_int x -> is_int (Rabs x).
Proof.
  intros [n ->]. unfold Rabs. destruct (Rcase_abs (IZR n)); [| now exists n].
  exists (- n)%Z. now rewrite opp_IZR.
Qed.
Lemma int_eq {x y : R} : x = y -> is_int y -> is_int x.
Proof. now intros ->. Qed.

Lemma next_whole {x : R} (m : Z) : is_int x -> IZR m - 1 < x -> IZR m <= x.
Proof.
  intros [n ->] H. apply IZR_le. cut (m - 1 < n)%Z; [lia |].
  apply lt_IZR. now rewrite minus_IZR.
Qed.
Lemma round_above {p w c o : R} (m : Z) :
  is_int w -> 0 < c -> p = c * (w + o) -> IZR m - 1 <= - o -> 0 < p -> 0 <= w - IZR m.
Proof.
  intros I H -> G P. cut (IZR m <= w); [lra |]. apply next_whole; [assumption |].
  cut (0 < w + o); [lra |]. apply Rmult_lt_reg_l with c; lra.
Qed.
Lemma round_least {p w c o : R} (m : Z) :
  is_int w -> 0 < c -> p = c * (w + o) -> IZR m - 1 < - o -> 0 <= p -> 0 <= w - IZR m.
Proof.
  intros I H -> G P. cut (IZR m <= w); [lra |]. apply next_whole; [assumption |].
  cut (0 <= w + o); [lra |]. apply Rmult_le_reg_l with c; lra.
Qed.
Lemma split_range {x : R} (m : Z) : is_int x -> x <= IZR m \/ IZR (m + 1) <= x.
Proof.
  intros H. destruct (Rle_lt_dec x (IZR m)); [now left | right]. apply next_whole; [assumption |].
  rewrite plus_IZR. lra.
Qed.

(* --- Cosines, quotients, floors, powers ------------------------------------------------------ *)

Lemma cospi_zero : cospi 0 = 1.
Proof. unfold cospi. rewrite Rmult_0_r. apply cos_0. Qed.
Lemma cospi_one : cospi 1 = IZR (-1).
Proof. unfold cospi. rewrite Rmult_1_r. apply cos_PI. Qed.
Lemma cospi_half : cospi (1 / 2) = 0.
Proof. unfold cospi. replace (PI * (1 / 2)) with (PI / 2) by lra. apply cos_PI2. Qed.
Lemma cospi_third : cospi (1 / 3) = 1 / 2.
Proof. unfold cospi. replace (PI * (1 / 3)) with (PI / 3) by lra. apply cos_PI3. Qed.
Lemma cospi_even (u v : R) : v = - u -> cospi u = cospi v.
Proof.
  intros ->. unfold cospi. replace (PI * - u) with (- (PI * u)) by ring. now rewrite cos_neg.
Qed.
Lemma cospi_period (u v : R) : v = u + 2 -> cospi v = cospi u.
Proof.
  intros ->. unfold cospi. replace (PI * (u + 2)) with (PI * u + 2 * 1 * PI) by ring.
  apply (cos_period _ 1).
Qed.
Lemma cospi_turn (u v : R) : v = u + 1 -> cospi v = - cospi u.
Proof.
  intros ->. unfold cospi. replace (PI * (u + 1)) with (PI * u + PI) by ring. apply neg_cos.
Qed.
Lemma cospi_whole_turns (u v : R) (n : Z) : v = u + 2 * IZR n -> cospi v = cospi u.
Proof.
  assert (N : forall (k : nat) (x : R), cospi (x + 2 * INR k) = cospi x).
  { intros k x. unfold cospi. replace (PI * (x + 2 * INR k)) with (PI * x + 2 * INR k * PI) by ring.
    apply cos_period. }
  intros ->. destruct (Z_le_gt_dec 0 n).
  - rewrite <- (Z2Nat.id n) by assumption. rewrite <- INR_IZR_INZ. apply N.
  - rewrite <- (N (Z.to_nat (- n)) (u + 2 * IZR n)). f_equal.
    rewrite INR_IZR_INZ, Z2Nat.id, opp_IZR by lia. ring.
Qed.
Lemma cospi_low (u : R) : IZR (-1) <= cospi u.
Proof. apply COS_bound. Qed.
Lemma cospi_high (u : R) : cospi u <= 1.
Proof. apply COS_bound. Qed.
Lemma cospi_falls (u v : R) : 0 <= u -> u < v -> v <= 1 -> cospi v < cospi u.
Proof.
  intros. assert (P := PI_RGT_0). unfold cospi. apply cos_decreasing_1; nra.
Qed.
Lemma cospi_rises (u v : R) : 1 <= u -> u < v -> v <= 2 -> cospi u < cospi v.
Proof.
  intros. rewrite (cospi_even u (- u)), (cospi_even v (- v)) by ring.
  rewrite <- (cospi_period (- u) (2 - u)), <- (cospi_period (- v) (2 - v)) by ring.
  apply cospi_falls; lra.
Qed.
Lemma cospi_falls_weakly (u v : R) : 0 <= u -> u <= v -> v <= 1 -> cospi v <= cospi u.
Proof. intros A [B | ->] C; [left; now apply cospi_falls | right; reflexivity]. Qed.
Lemma sinpi_cospi (u v : R) : v = u + IZR (-1) * (1 / 2) -> sinpi u = cospi v.
Proof.
  intros ->. unfold sinpi, cospi. replace (PI * (u + IZR (-1) * (1 / 2))) with (- (PI / 2 - PI * u))
    by lra. now rewrite cos_neg, cos_shift.
Qed.

Lemma cospi_at_zero (u : R) : u = 0 -> cospi u = 1.
Proof. intros ->. apply cospi_zero. Qed.
Lemma cospi_at_one (u : R) : u = 1 -> cospi u = IZR (-1).
Proof. intros ->. apply cospi_one. Qed.
Lemma cospi_at_two (u : R) : u = 2 -> cospi u = 1.
Proof. intros ->. rewrite (cospi_period 0 2) by ring. apply cospi_zero. Qed.
Lemma cospi_at_half (u : R) : u = 1 / 2 -> cospi u = 0.
Proof. intros ->. apply cospi_half. Qed.
Lemma cospi_above_minus_one (u : R) : IZR (-1) < u -> u < 1 -> IZR (-1) < cospi u.
Proof.
  intros. rewrite <- cospi_one. destruct (Rle_lt_dec 0 u).
  - now apply cospi_falls; [| | right].
  - rewrite (cospi_even u (- u)) by ring. apply cospi_falls; lra.
Qed.
Lemma cospi_below_one (u : R) : 0 < u -> u < 2 -> cospi u < 1.
Proof.
  intros. rewrite <- cospi_zero. destruct (Rle_lt_dec u 1).
  - apply cospi_falls; lra.
  - rewrite <- (cospi_period 0 2) by ring. apply cospi_rises; lra.
Qed.
Lemma cospi_positive (u : R) : IZR (-1) / 2 < u -> u < 1 / 2 -> 0 < cospi u.
Proof.
  intros. rewrite <- cospi_half. destruct (Rle_lt_dec 0 u).
  - apply cospi_falls; lra.
  - rewrite (cospi_even u (- u)) by ring. apply cospi_falls; lra.
Qed.
Lemma cospi_negative (u : R) : 1 / 2 < u -> u < 3 / 2 -> cospi u < 0.
Proof.
  intros. rewrite (cospi_turn (u - 1) u) by ring. cut (0 < cospi (u - 1)); [lra |].
  apply cospi_positive; lra.
Qed.
Lemma cospi_same (u v : R) : u = v -> cospi u = cospi v.
Proof. now intros ->. Qed.
Lemma cospi_mirrored (u v : R) : u + v = 0 -> cospi u = cospi v.
Proof. intros. apply cospi_even. lra. Qed.
Lemma cospi_turned (u v : R) (n : Z) : u - v = 2 * IZR n -> cospi u = cospi v.
Proof. intros. apply (cospi_whole_turns v u n). lra. Qed.
Lemma cospi_whole (u v : R) : is_int ((u - v) / 2) -> cospi u = cospi v.
Proof. intros [n H]. apply (cospi_turned u v n). lra. Qed.
Lemma cospi_half_turn (u v : R) : is_int ((u - v) / 2 + 1 / 2) -> cospi u = IZR (-1) * cospi v.
Proof.
  intros [n H]. rewrite (cospi_turned u (v - 1) n) by lra.
  rewrite (cospi_turn (v - 1) v) by ring. lra.
Qed.

Lemma cospi_whole_sum (u v : R) : is_int ((u + v) / 2) -> cospi u = cospi v.
Proof. intros [n H]. rewrite (cospi_even v (- v)) by ring. apply (cospi_turned u (- v) n). lra. Qed.
Lemma cospi_half_turn_sum (u v : R) :
  is_int ((u + v) / 2 + 1 / 2) -> cospi u = IZR (-1) * cospi v.
Proof.
  intros [n H]. rewrite (cospi_even v (- v)) by ring. apply cospi_half_turn. exists n. lra.
Qed.
Lemma cospi_from_one (u v : R) : cospi u = 1 -> cospi (u + IZR (-1) * v) = cospi v.
Proof.
  unfold cospi. intros H. replace (PI * (u + IZR (-1) * v)) with (PI * u - PI * v) by ring.
  assert (S := sin2_cos2 (PI * u)). unfold Rsqr in S. rewrite H in S.
  assert (Z : sin (PI * u) = 0) by nra. rewrite cos_minus, H, Z. ring.
Qed.
Lemma cospi_from_minus_one (u v : R) :
  cospi u = IZR (-1) -> cospi (u + IZR (-1) * v) = IZR (-1) * cospi v.
Proof.
  unfold cospi. intros H. replace (PI * (u + IZR (-1) * v)) with (PI * u - PI * v) by ring.
  assert (S := sin2_cos2 (PI * u)). unfold Rsqr in S. rewrite H in S.
  assert (Z : sin (PI * u) = 0) by nra. rewrite cos_minus, H, Z. ring.
Qed.
Lemma cospi_double (u v : R) : u = 2 * v -> cospi u + 1 = 2 * cospi v * cospi v.
Proof.
  intros ->. unfold cospi. replace (PI * (2 * v)) with (2 * (PI * v)) by ring.
  rewrite cos_2a_cos. ring.
Qed.
Lemma cospi_product (u v : R) :
  2 * cospi u * cospi v = cospi (u + v) + cospi (u + IZR (-1) * v).
Proof.
  unfold cospi. replace (PI * (u + v)) with (PI * u + PI * v) by ring.
  replace (PI * (u + IZR (-1) * v)) with (PI * u - PI * v) by ring.
  rewrite cos_plus, cos_minus. ring.
Qed.

Lemma pi_low : 314159 / 100000 < PI.
Proof. interval with (i_prec 60). Qed.
Lemma pi_high : PI < 3927 / 1250.
Proof. interval with (i_prec 60). Qed.

Lemma quotient_times (a b : R) : b <> 0 -> a / b * b = a.
Proof. intros. now field. Qed.
Lemma quotient_positive (b : R) : 0 < b -> 0 < 1 / b.
Proof. intros. apply Rdiv_lt_0_compat; lra. Qed.
Lemma quotient_negative (b : R) : b < 0 -> 1 / b < 0.
Proof. intros. unfold Rdiv. rewrite Rmult_1_l. now apply Rinv_lt_0_compat. Qed.

Lemma exp_least (u : R) : 1 + u <= exp u.
Proof.
  destruct (Req_dec u 0) as [-> | H]; [rewrite exp_0; lra |]. left. now apply exp_ineq1.
Qed.
Lemma exp_below_one (u : R) : u < 0 -> exp u < 1.
Proof. intros. rewrite <- exp_0. now apply exp_increasing. Qed.
Lemma exp_above_one (u : R) : 0 < u -> 1 < exp u.
Proof. intros. rewrite <- exp_0. now apply exp_increasing. Qed.
Lemma exp_most (u : R) : u < 1 -> exp u * (1 + IZR (-1) * u) <= 1.
Proof.
  intros. assert (G := exp_least (- u)). assert (P := exp_pos u).
  assert (exp u * exp (- u) = 1) by (rewrite <- exp_plus, Rplus_opp_r; apply exp_0). nra.
Qed.
Lemma exp_same (u v : R) : u = v -> exp u = exp v.
Proof. now intros ->. Qed.
Lemma exp_step (u v : R) : exp v = exp u * exp (v + IZR (-1) * u).
Proof. rewrite <- exp_plus. f_equal. ring. Qed.
Lemma exp_convex (a x y : R) : 0 <= a <= 1 ->
  exp (a * x + (1 - a) * y) <= a * exp x + (1 - a) * exp y.
Proof.
  intros H. set (m := a * x + (1 - a) * y).
  assert (T : forall z, exp m * (1 + (z - m)) <= exp z).
  { intros z. replace z with (m + (z - m)) at 2 by ring. rewrite exp_plus.
    apply Rmult_le_compat_l; [left; apply exp_pos | apply exp_least]. }
  assert (a * (exp m * (1 + (x - m))) <= a * exp x) by (apply Rmult_le_compat_l; [lra | apply T]).
  assert ((1 - a) * (exp m * (1 + (y - m))) <= (1 - a) * exp y)
    by (apply Rmult_le_compat_l; [lra | apply T]).
  replace (exp m) with (a * (exp m * (1 + (x - m))) + (1 - a) * (exp m * (1 + (y - m)))) at 1;
    [lra |]. unfold m. ring.
Qed.

Lemma log_positive (u : R) : 1 < u -> 0 < ln u.
Proof. intros. rewrite <- ln_1. apply ln_increasing; lra. Qed.
Lemma log_one (u : R) : u = 1 -> ln u = 0.
Proof. intros ->. apply ln_1. Qed.
Lemma log_negative (u : R) : 0 < u -> u < 1 -> ln u < 0.
Proof. intros. rewrite <- ln_1. now apply ln_increasing. Qed.
Lemma log_most (u : R) : 0 < u -> ln u <= u + IZR (-1) * 1.
Proof. intros. assert (G := exp_least (ln u)). rewrite exp_ln in G by assumption. lra. Qed.
Lemma log_least (u : R) : 0 < u -> u + IZR (-1) * 1 <= u * ln u.
Proof.
  intros. assert (G := log_most (/ u) (Rinv_0_lt_compat _ H)). rewrite ln_Rinv in G by assumption.
  assert (u * / u = 1) by (apply Rinv_r; lra). nra.
Qed.
Lemma log_same (u v : R) : 0 < u -> u = v -> ln u = ln v.
Proof. now intros _ ->. Qed.

Lemma atan_low (u : R) : IZR (-1) / 2 * PI < atan u.
Proof. destruct (atan_bound u). lra. Qed.
Lemma atan_high (u : R) : atan u < 1 / 2 * PI.
Proof. destruct (atan_bound u). lra. Qed.
Lemma atan_at_zero (u : R) : u = 0 -> atan u = 0.
Proof. intros ->. apply atan_0. Qed.
Lemma atan_positive (u : R) : 0 < u -> 0 < atan u.
Proof. intros. rewrite <- atan_0. now apply atan_increasing. Qed.
Lemma atan_negative (u : R) : u < 0 -> atan u < 0.
Proof. intros. rewrite <- atan_0. now apply atan_increasing. Qed.
Lemma atan_most (u : R) : 0 < u -> atan u < u.
Proof.
  intros P. assert (D : forall x, 0 <= x <= u -> derivable_pt_lim atan x (/ (1 + x ^ 2)))
    by (intros; apply derivable_pt_lim_atan).
  destruct (MVT_cor2 atan (fun x => / (1 + x ^ 2)) 0 u P D) as (c & E & C & _).
  rewrite atan_0, !Rminus_0_r in E. rewrite E.
  assert (G : / (1 + c ^ 2) < / 1) by (apply Rinv_lt_contravar; nra).
  rewrite Rinv_1 in G. nra.
Qed.
Lemma atan_least (u : R) : u < 0 -> u < atan u.
Proof. intros. assert (G := atan_most (- u)). rewrite atan_opp in G. lra. Qed.
Lemma atan_same (u v : R) : u = v -> atan u = atan v.
Proof. now intros ->. Qed.

Lemma floor_most (u : R) : floor u <= u.
Proof. unfold floor. apply base_Int_part. Qed.
Lemma floor_least (u : R) : u < floor u + 1.
Proof. unfold floor. destruct (base_Int_part u). lra. Qed.
Lemma floor_at_least (m : Z) (u : R) : IZR m <= u -> IZR m <= floor u.
Proof.
  intros. apply next_whole; [apply int_floor |]. assert (G := floor_least u). lra.
Qed.
Lemma floor_at_most (m : Z) (u : R) : u < IZR m -> floor u <= IZR m + IZR (-1) * 1.
Proof.
  intros. assert (G := floor_most u). destruct (int_floor u) as [n E]. rewrite E in *.
  assert (n < m)%Z by (apply lt_IZR; lra). replace (IZR m + IZR (-1) * 1) with (IZR (m - 1));
  [apply IZR_le; lia | rewrite minus_IZR; lra].
Qed.
Lemma floor_whole (u : R) : is_int u -> floor u = u.
Proof.
  intros [n ->]. assert (A := floor_most (IZR n)). assert (B := floor_least (IZR n)).
  unfold floor in *. f_equal. cut (n - 1 < Int_part (IZR n) <= n)%Z; [lia |].
  split; [apply lt_IZR; rewrite minus_IZR; lra | now apply le_IZR].
Qed.
Lemma floor_monotone (u v : R) : u <= v -> floor u <= floor v.
Proof.
  intros. apply floor_at_least. assert (A := floor_most u). unfold floor in A. lra.
Qed.
Lemma floor_same (u v : R) : u = v -> floor u = floor v.
Proof. now intros ->. Qed.
Lemma floor_next (u v : R) : v <= u + 1 -> floor v <= floor u + 1.
Proof.
  intros. destruct (int_floor u) as [n E]. rewrite E, <- plus_IZR.
  assert (G := floor_least u). destruct (int_floor v) as [m F]. assert (I := floor_most v).
  rewrite E in G. rewrite F in *. apply IZR_le. cut (m < n + 2)%Z; [lia |].
  apply lt_IZR. rewrite plus_IZR. lra.
Qed.
Lemma floor_order (u v : R) : floor v < floor u -> floor v < floor u.
Proof. tauto. Qed.

(* Of a quotient: the floor times the divisor, and the cosine of whole turns. *)
Lemma floor_quotient_most (u a b : R) : (b <> 0 -> u = a / b) -> 0 < b -> floor u * b <= a.
Proof.
  intros E P. assert (G := floor_most u).
  replace a with (u * b) by (rewrite E by lra; field; lra). apply Rmult_le_compat_r; lra.
Qed.
Lemma floor_quotient_least (u a b : R) : (b <> 0 -> u = a / b) -> 0 < b -> a < floor u * b + b.
Proof.
  intros E P. assert (G := floor_least u).
  replace a with (u * b) by (rewrite E by lra; field; lra). nra.
Qed.
Lemma cospi_reduced (u : R) : cospi u = cospi (u - 2 * floor (1 / 2 * u)).
Proof.
  unfold floor. symmetry. apply (cospi_whole_turns u _ (- Int_part (1 / 2 * u))).
  rewrite opp_IZR. ring.
Qed.
Lemma cospi_is_one (u a b : R) : (b <> 0 -> u = a / b) -> 0 < b -> cospi u = 1 ->
  a = 2 * floor (1 / 2 * u) * b.
Proof.
  intros E P H. replace a with (u * b) by (rewrite E by lra; field; lra). f_equal.
  rewrite cospi_reduced in H. assert (A := floor_most (1 / 2 * u)).
  assert (B := floor_least (1 / 2 * u)). destruct (Rlt_le_dec 0 (u - 2 * floor (1 / 2 * u))); [| lra].
  assert (G : cospi (u - 2 * floor (1 / 2 * u)) < 1) by (apply cospi_below_one; lra). lra.
Qed.
Lemma cospi_is_minus_one (u a b : R) : (b <> 0 -> u = a / b) -> 0 < b -> cospi u = IZR (-1) ->
  a = (2 * floor (1 / 2 * u) + 1) * b.
Proof.
  intros E P H. replace a with (u * b) by (rewrite E by lra; field; lra). f_equal.
  rewrite cospi_reduced in H. assert (A := floor_most (1 / 2 * u)).
  assert (B := floor_least (1 / 2 * u)). set (r := u - 2 * floor (1 / 2 * u)) in *.
  cut (r = 1); [unfold r; lra |]. destruct (Rtotal_order r 1) as [C | [C | C]]; [| exact C |].
  - assert (IZR (-1) < cospi r) by (apply cospi_above_minus_one; unfold r in *; lra). lra.
  - rewrite (cospi_period (r - 2) r) in H by ring.
    assert (IZR (-1) < cospi (r - 2)) by (apply cospi_above_minus_one; unfold r in *; lra). lra.
Qed.
Lemma cospi_at_even (u a b : R) : (b <> 0 -> u = a / b) -> 0 < b ->
  a = 2 * floor (1 / 2 * u) * b -> cospi u = 1.
Proof.
  intros E P H. assert (F : u = 2 * floor (1 / 2 * u)).
  { apply (Rmult_eq_reg_r b); [| lra]. rewrite <- H. rewrite E by lra. field. lra. }
  rewrite cospi_reduced, <- F, Rminus_diag_eq by reflexivity. apply cospi_zero.
Qed.
Lemma cospi_at_odd (u a b : R) : (b <> 0 -> u = a / b) -> 0 < b ->
  a = (2 * floor (1 / 2 * u) + 1) * b -> cospi u = IZR (-1).
Proof.
  intros E P H. assert (F : u = 2 * floor (1 / 2 * u) + 1).
  { apply (Rmult_eq_reg_r b); [| lra]. rewrite <- H. rewrite E by lra. field. lra. }
  rewrite cospi_reduced. apply cospi_at_one. lra.
Qed.

Lemma int_part_whole (n : Z) : Int_part (IZR n) = n.
Proof. apply eq_IZR. apply (floor_whole (IZR n)). apply int_whole. Qed.
Lemma pw_positive_base (b e : R) : 0 < b -> pw b e = Rpower b e.
Proof. intros. unfold pw. destruct (Rlt_dec 0 b); tauto. Qed.
Lemma pw_whole (b : R) (n : Z) : pw b (IZR n) = powerRZ b n.
Proof.
  unfold pw. destruct (Rlt_dec 0 b); [now rewrite powerRZ_Rpower |]. rewrite int_part_whole.
  now destruct (Req_EM_T (IZR n) (IZR n)).
Qed.
Lemma pw_power (b e : R) (n : nat) : e = IZR (Z.of_nat n) -> pw b e = b ^ n.
Proof. intros ->. rewrite pw_whole. symmetry. apply pow_powerRZ. Qed.
Lemma pw_inverse_power (b e : R) (n : nat) : e = IZR (- Z.of_nat n) -> pw b e = (/ b) ^ n.
Proof.
  intros ->. rewrite pw_whole, pow_inv. destruct n; simpl; [now rewrite Rinv_1 |].
  now rewrite SuccNat2Pos.id_succ.
Qed.
Lemma pw_zero_base (b e : R) : b = 0 -> 0 < e -> pw b e = 0.
Proof.
  intros -> H. unfold pw. destruct (Rlt_dec 0 0); [lra |].
  destruct (Req_EM_T (IZR (Int_part e)) e) as [E |]; [| reflexivity].
  assert (0 < Int_part e)%Z by (apply lt_IZR; lra).
  destruct (Int_part e) as [| p | p] eqn:F; [lia | simpl; apply pow_i, Pos2Nat.is_pos | lia].
Qed.
Lemma pw_exponent_zero (b e : R) : e = 0 -> pw b e = 1.
Proof. intros ->. apply (pw_power b 0 0). reflexivity. Qed.
Lemma pw_exponent_one (b e : R) : e = 1 -> pw b e = b.
Proof. intros ->. rewrite (pw_power b 1 1) by reflexivity. ring. Qed.
Lemma pw_base_one (b e : R) : b = 1 -> pw b e = 1.
Proof.
  intros ->. rewrite pw_positive_base by lra. unfold Rpower. rewrite ln_1, Rmult_0_r. apply exp_0.
Qed.
Lemma pw_above_zero (b e : R) : 0 < b -> 0 < pw b e.
Proof. intros. rewrite pw_positive_base by assumption. apply exp_pos. Qed.
Lemma pw_least_zero (b e : R) : 0 <= b -> 0 <= e -> 0 <= pw b e.
Proof.
  intros [H | <-] G; [left; now apply pw_above_zero |].
  destruct G as [G | <-]; [rewrite pw_zero_base | rewrite pw_exponent_zero]; lra.
Qed.
Lemma pw_unit_low (b e : R) : 0 <= b -> b <= 1 -> 0 < e -> 0 <= pw b e.
Proof. intros. apply pw_least_zero; lra. Qed.
Lemma pw_below_one (b e : R) : 0 < b -> b < 1 -> 0 < e -> pw b e < 1.
Proof.
  intros. rewrite pw_positive_base by assumption. apply exp_below_one.
  assert (G := log_negative b H H0). nra.
Qed.
Lemma pw_unit_high (b e : R) : 0 <= b -> b <= 1 -> 0 < e -> pw b e <= 1.
Proof.
  intros [H | <-] G I.
  - destruct G as [G | ->]; [left; now apply pw_below_one | rewrite pw_base_one; lra].
  - rewrite pw_zero_base; lra.
Qed.
Lemma pw_above_one (b e : R) : 1 < b -> 0 < e -> 1 < pw b e.
Proof.
  intros. rewrite pw_positive_base by lra. apply exp_above_one.
  assert (G := log_positive b H). nra.
Qed.
Lemma pw_above_one_falling (b e : R) : 0 < b -> b < 1 -> e < 0 -> 1 < pw b e.
Proof.
  intros. rewrite pw_positive_base by lra. apply exp_above_one.
  assert (G := log_negative b H H0). nra.
Qed.
Lemma pw_below_one_falling (b e : R) : 1 < b -> e < 0 -> pw b e < 1.
Proof.
  intros. rewrite pw_positive_base by lra. apply exp_below_one.
  assert (G := log_positive b H). nra.
Qed.
Lemma pw_tangent_above (b e : R) : 0 < b -> 1 <= e -> 1 + e * (b + IZR (-1) * 1) <= pw b e.
Proof.
  intros. rewrite pw_positive_base by assumption. unfold Rpower. set (x := ln b).
  assert (I : 0 < / e) by (apply Rinv_0_lt_compat; lra).
  assert (J : / e * e = 1) by (apply Rinv_l; lra). assert (/ e <= 1) by nra.
  assert (C := exp_convex (/ e) (e * x) 0). rewrite exp_0 in C.
  replace (/ e * (e * x) + (1 - / e) * 0) with x in C by (rewrite <- Rmult_assoc, J; ring).
  unfold x in C at 1. rewrite exp_ln in C by assumption.
  assert (b <= / e * exp (e * x) + (1 - / e) * 1) by (apply C; lra).
  assert (e * b <= e * (/ e * exp (e * x) + (1 - / e) * 1)) by (apply Rmult_le_compat_l; lra).
  replace (e * (/ e * exp (e * x) + (1 - / e) * 1)) with (exp (e * x) * (/ e * e) + (e - / e * e))
    in H3 by ring. rewrite J in H3. lra.
Qed.
Lemma pw_tangent_negative (b e : R) : 0 < b -> e <= 0 -> 1 + e * (b + IZR (-1) * 1) <= pw b e.
Proof.
  intros. rewrite pw_positive_base by assumption. unfold Rpower. set (x := ln b). set (d := 1 - e).
  assert (I : 0 < / d) by (apply Rinv_0_lt_compat; unfold d; lra).
  assert (J : / d * d = 1) by (apply Rinv_l; unfold d; lra).
  assert (/ d <= 1) by (unfold d in *; nra).
  assert (C := exp_convex (/ d) (e * x) x).
  replace (/ d * (e * x) + (1 - / d) * x) with 0 in C
    by (replace e with (1 - d) by (unfold d; ring);
        replace (/ d * ((1 - d) * x) + (1 - / d) * x) with (x - (/ d * d) * x) by ring;
        rewrite J; ring).
  rewrite exp_0 in C. unfold x in C at 2. rewrite exp_ln in C by assumption.
  assert (1 <= / d * exp (e * x) + (1 - / d) * b) by (apply C; lra).
  assert (d * 1 <= d * (/ d * exp (e * x) + (1 - / d) * b))
    by (apply Rmult_le_compat_l; [unfold d; lra | assumption]).
  replace (d * (/ d * exp (e * x) + (1 - / d) * b))
    with (exp (e * x) * (/ d * d) + (d - / d * d) * b) in H3 by ring.
  rewrite J in H3. unfold d in H3. lra.
Qed.
Lemma pw_tangent_below (b e : R) :
  0 < b -> 0 <= e -> e <= 1 -> pw b e <= 1 + e * (b + IZR (-1) * 1).
Proof.
  intros. rewrite pw_positive_base by assumption. unfold Rpower.
  assert (C := exp_convex e (ln b) 0). rewrite exp_0, exp_ln in C by assumption.
  replace (e * ln b + (1 - e) * 0) with (e * ln b) in C by ring.
  assert (exp (e * ln b) <= e * b + (1 - e) * 1) by (apply C; lra). lra.
Qed.
Lemma pw_monotone (a b x : R) : 0 <= a -> a <= b -> 0 < x -> pw a x <= pw b x.
Proof.
  intros [H | <-] G P.
  - rewrite !pw_positive_base by lra. unfold Rpower.
    destruct G as [G | ->]; [| lra]. left. apply exp_increasing.
    apply Rmult_lt_compat_l; [assumption | now apply ln_increasing].
  - rewrite pw_zero_base by lra. apply pw_least_zero; lra.
Qed.
Lemma pw_strict (a b x : R) : 0 <= a -> a < b -> 0 < x -> pw a x < pw b x.
Proof.
  intros [H | <-] G P.
  - rewrite !pw_positive_base by lra. apply exp_increasing.
    apply Rmult_lt_compat_l; [assumption | now apply ln_increasing].
  - rewrite pw_zero_base by lra. now apply pw_above_zero.
Qed.
Lemma pw_reversed (a b x : R) : 0 < a -> a <= b -> x < 0 -> pw b x <= pw a x.
Proof.
  intros H G P. rewrite !pw_positive_base by lra. unfold Rpower.
  destruct G as [G | ->]; [| lra]. left. apply exp_increasing.
  assert (ln a < ln b) by now apply ln_increasing. nra.
Qed.
Lemma pw_grows (a x y : R) : 1 <= a -> x <= y -> pw a x <= pw a y.
Proof.
  intros [H | <-] G; [| rewrite !pw_base_one; lra]. rewrite !pw_positive_base by lra. unfold Rpower.
  destruct G as [G | ->]; [| lra]. left. apply exp_increasing. assert (L := log_positive a H). nra.
Qed.
Lemma pw_falls_strictly (a x y : R) : 0 < a -> a < 1 -> x < y -> pw a y < pw a x.
Proof.
  intros. rewrite !pw_positive_base by lra. apply exp_increasing.
  assert (L := log_negative a H H0). nra.
Qed.
Lemma pw_falls (a x y : R) : 0 < a -> a <= 1 -> x <= y -> pw a y <= pw a x.
Proof.
  intros H [G | ->] [I | ->]; try (rewrite !pw_base_one; lra); [| lra].
  left. now apply pw_falls_strictly.
Qed.
Lemma pw_grows_strictly (a x y : R) : 1 < a -> x < y -> pw a x < pw a y.
Proof.
  intros. rewrite !pw_positive_base by lra. apply exp_increasing.
  assert (L := log_positive a H). nra.
Qed.
Lemma pw_step (a x y : R) : 0 < a -> pw a y = pw a x * pw a (y + IZR (-1) * x).
Proof. intros. rewrite !pw_positive_base, <- Rpower_plus by assumption. f_equal. ring. Qed.
Lemma pw_whole_step (a x y : R) (n : nat) :
  is_int x -> y + IZR (-1) * x = IZR (Z.of_nat n) -> 0 <= x ->
  pw a y = pw a x * pw a (y + IZR (-1) * x).
Proof.
  intros [m ->] E P. rewrite E. replace y with (IZR (m + Z.of_nat n)) by (rewrite plus_IZR; lra).
  assert (0 <= m)%Z by (now apply le_IZR).
  rewrite <- (Z2Nat.id m), <- Nat2Z.inj_add by assumption.
  rewrite !pw_whole, <- !pow_powerRZ. apply pow_add.
Qed.
Lemma pw_at_most_base (b e : R) : 0 <= b -> b <= 1 -> 1 <= e -> pw b e <= b.
Proof.
  intros [H | <-] G I.
  - rewrite <- (pw_exponent_one b 1) at 2 by reflexivity. now apply pw_falls.
  - rewrite pw_zero_base; lra.
Qed.
Lemma pw_root (b e : R) : e = 1 / 2 -> 0 <= b -> pw b e * pw b e = b.
Proof.
  intros -> [H | <-]; [| rewrite pw_zero_base; lra].
  rewrite pw_positive_base, <- Rpower_plus by assumption.
  replace (1 / 2 + 1 / 2) with 1 by lra. now apply Rpower_1.
Qed.
Lemma pw_root_of (r b e : R) : e = 1 / 2 -> 0 <= r -> b = r * r -> pw b e = r.
Proof.
  intros E H ->. assert (P : 0 <= r * r) by nra. assert (G := pw_root (r * r) e E P).
  assert (0 <= pw (r * r) e) by (apply pw_least_zero; lra). nra.
Qed.
Lemma pw_not_zero (b e : R) : is_int e -> b <> 0 -> pw b e <> 0.
Proof. intros [n ->] H. rewrite pw_whole. now apply powerRZ_NOR. Qed.
Lemma pw_is_exp (b e u : R) : 0 < b -> e * ln b = u -> pw b e = exp u.
Proof. intros H <-. now rewrite pw_positive_base. Qed.
Lemma pw_of_zero (x : R) : x <> 0 -> pw 0 x = 0.
Proof.
  intros H. destruct (Rtotal_order x 0) as [N | [E | P]]; [| lra | now apply pw_zero_base].
  unfold pw. destruct (Rlt_dec 0 0); [lra |].
  destruct (Req_EM_T (IZR (Int_part x)) x) as [E |]; [| reflexivity].
  destruct (Int_part x) as [| p | p] eqn:F; [lra | |].
  - assert (0 < IZR (Z.pos p)) by (apply IZR_lt; lia). lra.
  - simpl. rewrite pow_i by apply Pos2Nat.is_pos. apply Rinv_0.
Qed.
Lemma pw_quotient (a b x : R) : 0 < a -> 0 <= b -> pw b x = pw a x * pw (b / a) x.
Proof.
  intros H [G | <-].
  - assert (0 < b / a) by now apply Rdiv_lt_0_compat.
    rewrite !pw_positive_base, Rpower_mult_distr by assumption. f_equal. field. lra.
  - replace (0 / a) with 0 by (field; lra). destruct (Req_dec x 0) as [E | N].
    + rewrite !pw_exponent_zero by assumption. ring.
    + rewrite (pw_of_zero x) by assumption. ring.
Qed.
Lemma floor_log_most (a b : R) : 1 < b -> 0 < a -> pw b (floor (ln a / ln b)) <= a.
Proof.
  intros H G. rewrite pw_positive_base by lra. unfold Rpower.
  apply Rle_trans with (exp (ln a)); [| rewrite exp_ln; lra].
  assert (L := log_positive b H). assert (F := floor_most (ln a / ln b)).
  cut (floor (ln a / ln b) * ln b <= ln a);
    [intros [I | ->]; [left; now apply exp_increasing | right; reflexivity] |].
  apply floor_quotient_most; [reflexivity | assumption].
Qed.
Lemma floor_log_least (a b : R) : 1 < b -> 0 < a -> a < b * pw b (floor (ln a / ln b)).
Proof.
  intros H G. rewrite pw_positive_base by lra. unfold Rpower.
  apply Rle_lt_trans with (exp (ln a)); [rewrite exp_ln; lra |].
  rewrite <- (exp_ln b) at 1 by lra. rewrite <- exp_plus. apply exp_increasing.
  assert (L := log_positive b H).
  assert (F := floor_quotient_least (ln a / ln b) (ln a) (ln b) (fun _ => eq_refl) L). lra.
Qed.
Lemma pw_same (a b x y : R) : a = b -> x = y -> pw a x = pw b y.
Proof. now intros -> ->. Qed.

Lemma floor_between (n : Z) (u : R) : IZR n <= u -> u < IZR n + 1 -> floor u = IZR n.
Proof.
  intros A B. apply Rle_antisym; [| now apply floor_at_least].
  replace (IZR n) with (IZR (n + 1) + IZR (-1) * 1) by (rewrite plus_IZR; lra).
  apply floor_at_most. now rewrite plus_IZR.
Qed.
Lemma pw_root_low (b e : R) : e = 1 / 2 -> 0 <= b -> 0 <= pw b e.
Proof. intros -> H. apply pw_least_zero; lra. Qed.
Lemma pw_root_is (b e y : R) : e = 1 / 2 -> 0 <= b -> 0 <= y -> y * y = b -> pw b e = y.
Proof.
  intros E H G S. apply Rsqr_inj; [now apply pw_root_low | exact G |].
  unfold Rsqr. now rewrite (pw_root b e E H).
Qed.
Lemma table_low (entries : list R) (low : R) (m : Z) (u : R) :
  is_int u -> List.Forall (fun e => low <= e) entries -> m = (Z.of_nat (length entries) - 1)%Z ->
  0 <= u -> u <= IZR m -> low <= table entries u.
Proof.
  intros [n ->] F -> A B. unfold table. rewrite int_part_whole.
  assert (0 <= n)%Z by now apply le_IZR.
  assert (n <= Z.of_nat (length entries) - 1)%Z by now apply le_IZR.
  apply (proj1 (List.Forall_forall _ _) F). apply nth_In. lia.
Qed.
Lemma table_high (entries : list R) (high : R) (m : Z) (u : R) :
  is_int u -> List.Forall (fun e => e <= high) entries -> m = (Z.of_nat (length entries) - 1)%Z ->
  0 <= u -> u <= IZR m -> table entries u <= high.
Proof.
  intros [n ->] F -> A B. unfold table. rewrite int_part_whole.
  assert (0 <= n)%Z by now apply le_IZR.
  assert (n <= Z.of_nat (length entries) - 1)%Z by now apply le_IZR.
  apply (proj1 (List.Forall_forall _ _) F). apply nth_In. lia.
Qed.

Lemma abs_opposite (u : R) : u < 0 -> Rabs u = IZR (-1) * u.
Proof. intros. rewrite Rabs_left by assumption. ring. Qed.
Lemma abs_itself (u : R) : 0 <= u -> Rabs u = u.
Proof. intros. apply Rabs_right. lra. Qed.
Lemma sgn_positive (u : R) : 0 < u -> sgn u = 1.
Proof. intros. unfold sgn. destruct (Rlt_dec 0 u); lra. Qed.
Lemma sgn_negative (u : R) : u < 0 -> sgn u = IZR (-1).
Proof. intros. unfold sgn. destruct (Rlt_dec 0 u); [lra |]. destruct (Rlt_dec u 0); lra. Qed.
Lemma sgn_zero (u : R) : u = 0 -> sgn u = 0.
Proof. intros ->. unfold sgn. destruct (Rlt_dec 0 0); lra. Qed.
Lemma min_left (x y : R) : x <= y -> Rmin x y = x.
Proof. apply Rmin_left. Qed.
Lemma min_right (x y : R) : y < x -> Rmin x y = y.
Proof. intros. apply Rmin_right. lra. Qed.
Lemma max_right (x y : R) : x <= y -> Rmax x y = y.
Proof. apply Rmax_right. Qed.
Lemma max_left (x y : R) : y < x -> Rmax x y = x.
Proof. intros. apply Rmax_left. lra. Qed.

(* Powers with equal exponents, or with equal bases. *)
Lemma pw_monotone_by (a b x y : R) : x = y -> 0 <= a -> a <= b -> 0 < x -> pw a x <= pw b y.
Proof. intros <-. apply pw_monotone. Qed.
Lemma pw_strict_by (a b x y : R) : x = y -> 0 <= a -> a < b -> 0 < x -> pw a x < pw b y.
Proof. intros <-. apply pw_strict. Qed.
Lemma pw_reversed_by (a b x y : R) : x = y -> 0 < a -> a <= b -> x < 0 -> pw b y <= pw a x.
Proof. intros <-. apply pw_reversed. Qed.
Lemma pw_quotient_by (a b x y : R) :
  x = y -> 0 < a -> 0 <= b -> pw b y = pw a x * pw (b / a) x.
Proof. intros <-. apply pw_quotient. Qed.
Lemma pw_grows_by (a b x y : R) : a = b -> 1 <= a -> x <= y -> pw a x <= pw b y.
Proof. intros <-. apply pw_grows. Qed.
Lemma pw_falls_by (a b x y : R) : a = b -> 0 < a -> a <= 1 -> x <= y -> pw b y <= pw a x.
Proof. intros <-. apply pw_falls. Qed.
Lemma pw_falls_strictly_by (a b x y : R) : a = b -> 0 < a -> a < 1 -> x < y -> pw b y < pw a x.
Proof. intros <-. apply pw_falls_strictly. Qed.
Lemma pw_grows_strictly_by (a b x y : R) : a = b -> 1 < a -> x < y -> pw a x < pw b y.
Proof. intros <-. apply pw_grows_strictly. Qed.
Lemma pw_step_by (a b x y : R) : a = b -> 0 < a -> pw b y = pw a x * pw a (y + IZR (-1) * x).
Proof. intros <-. apply pw_step. Qed.
Lemma pw_whole_step_by (a b x y : R) (n : nat) :
  a = b -> is_int x -> y + IZR (-1) * x = IZR (Z.of_nat n) -> 0 <= x ->
  pw b y = pw a x * pw a (y + IZR (-1) * x).
Proof. intros <-. apply pw_whole_step. Qed.

(* A lemma with premises as the disjunction of the opposites of its premises and its conclusion. *)
Ltac imply lemma :=
  lazymatch goal with
  | |- ?b <= ?a \/ _ =>
      let h := fresh in destruct (Rlt_le_dec a b) as [h | h];
      [right; imply constr:(lemma h) | left; exact h]
  | |- ?b < ?a \/ _ =>
      let h := fresh in destruct (Rle_lt_dec a b) as [h | h];
      [right; imply constr:(lemma h) | left; exact h]
  | |- ?a <> ?b \/ _ =>
      let h := fresh in destruct (Req_dec a b) as [h | h];
      [right; imply constr:(lemma h) | left; exact h]
  | |- ?a = ?b \/ _ =>
      let h := fresh in destruct (Req_dec a b) as [h | h];
      [left; exact h | right; imply constr:(lemma h)]
  | |- _ => exact lemma
  end.

(* A quotient cleared: an equation of fractions whose divisor is not 0. *)
Ltac by_field H := field; intro; apply H; first [assumption | lra | nra].

(* --- Intervals ------------------------------------------------------------------------------- *)

Open Scope R_scope.
Definition ends := (option Q * option Q)%type.
Definition above_low (low : option Q) (x : R) : Prop :=
  match low with Some q => Q2R q <= x | None => True end.
Definition below_high (high : option Q) (x : R) : Prop :=
  match high with Some q => x <= Q2R q | None => True end.
Definition bnd (i : ends) (x : R) : Prop := above_low (fst i) x /\ below_high (snd i) x.
Definition plus_ends (a b : option Q) : option Q :=
  match a, b with Some p, Some q => Some (Qred (p + q)) | _, _ => None end.
Definition scale_end (c : Q) (a : option Q) : option Q :=
  match a with Some p => Some (Qred (c * p)) | None => None end.
Definition opposite (i : ends) : ends :=
  (match snd i with Some q => Some (Qopp q) | None => None end,
   match fst i with Some q => Some (Qopp q) | None => None end).
Ltac at_ends := cbn [fst snd plus_ends scale_end above_low below_high opposite] in *.

Lemma le_of_bool (p q : Q) : Qle_bool p q = true -> Q2R p <= Q2R q.
Proof. intros. apply Qle_Rle. now apply Qle_bool_iff. Qed.
Definition Qlt_bool (p q : Q) : bool := negb (Qle_bool q p).
Lemma lt_of_bool (p q : Q) : Qlt_bool p q = true -> Q2R p < Q2R q.
Proof.
  unfold Qlt_bool. intros H. apply Qlt_Rlt. apply Qnot_le_lt. intros G.
  apply Qle_bool_iff in G. rewrite G in H. discriminate.
Qed.
Lemma Q2R_whole (n : Z) : Q2R (n # 1) = IZR n.
Proof. unfold Q2R. simpl. now rewrite Rinv_1, Rmult_1_r. Qed.
Lemma Q2R_fraction (n : Z) (d : positive) : Q2R (n # d) = IZR n / IZR (Zpos d).
Proof. reflexivity. Qed.

Lemma b_both {l h : option Q} {x : R} : bnd (l, None) x -> bnd (None, h) x -> bnd (l, h) x.
Proof. intros [A _] [_ B]. now split. Qed.
Lemma b_equal {i : ends} {x y : R} : x = y -> bnd i y -> bnd i x.
Proof. now intros ->. Qed.
Definition low_of (i : ends) (t : option Q) : bool :=
  match t, fst i with None, _ => true | Some p, Some q => Qle_bool p q | _, _ => false end.
Definition high_of (i : ends) (t : option Q) : bool :=
  match t, snd i with None, _ => true | Some p, Some q => Qle_bool q p | _, _ => false end.
Lemma b_wide {i : ends} {x : R} (t : ends) :
  (low_of i (fst t) && high_of i (snd t))%bool = true -> bnd i x -> bnd t x.
Proof.
  intros H [A B]. apply andb_prop in H as [H G]. destruct i as [l h], t as [s u]; split; at_ends.
  - destruct s as [s |]; [| exact I]. destruct l as [l |]; [| discriminate].
    apply le_of_bool in H. at_ends. lra.
  - destruct u as [u |]; [| exact I]. destruct h as [h |]; [| discriminate].
    apply le_of_bool in G. at_ends. lra.
Qed.
Lemma b_number (n : Z) (d : positive) : bnd (Some (n # d), Some (n # d)) (IZR n / IZR (Zpos d)).
Proof. split; right; reflexivity. Qed.
Lemma b_whole (n : Z) : bnd (Some (n # 1), Some (n # 1)) (IZR n).
Proof. split; right; at_ends; now rewrite Q2R_whole. Qed.

Lemma Q2R_red (q : Q) : Q2R (Qred q) = Q2R q.
Proof. apply Qeq_eqR. apply Qred_correct. Qed.
Lemma b_add {i j : ends} {x y : R} :
  bnd i x -> bnd j y -> bnd (plus_ends (fst i) (fst j), plus_ends (snd i) (snd j)) (x + y).
Proof.
  destruct i as [a b], j as [c d]. intros [A B] [C D]. split; at_ends.
  - destruct a, c; at_ends; try exact I. rewrite Q2R_red, Q2R_plus. lra.
  - destruct b, d; at_ends; try exact I. rewrite Q2R_red, Q2R_plus. lra.
Qed.
Lemma scale_low {c : Q} {a : option Q} {x : R} :
  0 <= Q2R c -> above_low a x -> above_low (scale_end c a) (Q2R c * x).
Proof.
  intros H A. destruct a; at_ends; [| exact I]. rewrite Q2R_red, Q2R_mult. nra.
Qed.
Lemma scale_high {c : Q} {a : option Q} {x : R} :
  0 <= Q2R c -> below_high a x -> below_high (scale_end c a) (Q2R c * x).
Proof.
  intros H A. destruct a; at_ends; [| exact I]. rewrite Q2R_red, Q2R_mult. nra.
Qed.
Lemma scale_low_negative {c : Q} {a : option Q} {x : R} :
  Q2R c <= 0 -> above_low a x -> below_high (scale_end c a) (Q2R c * x).
Proof.
  intros H A. destruct a; at_ends; [| exact I]. rewrite Q2R_red, Q2R_mult. nra.
Qed.
Lemma scale_high_negative {c : Q} {a : option Q} {x : R} :
  Q2R c <= 0 -> below_high a x -> above_low (scale_end c a) (Q2R c * x).
Proof.
  intros H A. destruct a; at_ends; [| exact I]. rewrite Q2R_red, Q2R_mult. nra.
Qed.
Definition scaled (c : Q) (i : ends) : ends :=
  if Qle_bool 0 c then (scale_end c (fst i), scale_end c (snd i))
  else (scale_end c (snd i), scale_end c (fst i)).
Lemma Q2R_0 : Q2R 0 = 0.
Proof. exact (Q2R_whole 0). Qed.
Lemma b_scale_by (c : Q) {i : ends} {x : R} : bnd i x -> bnd (scaled c i) (Q2R c * x).
Proof.
  intros [A B]. unfold scaled. destruct (Qle_bool 0 c) eqn:E.
  - apply le_of_bool in E. rewrite Q2R_0 in E.
    split; [now apply scale_low | now apply scale_high].
  - assert (G : Q2R c < Q2R 0) by (apply lt_of_bool; unfold Qlt_bool; now rewrite E).
    rewrite Q2R_0 in G. split; [apply scale_high_negative | apply scale_low_negative]; auto; lra.
Qed.
Lemma b_scale (n : Z) (d : positive) {i : ends} {x : R} :
  bnd i x -> bnd (scaled (n # d) i) (IZR n / IZR (Zpos d) * x).
Proof. exact (b_scale_by (n # d)). Qed.
Lemma b_times (n : Z) {i : ends} {x : R} : bnd i x -> bnd (scaled (n # 1) i) (IZR n * x).
Proof. intros. rewrite <- Q2R_whole. now apply b_scale_by. Qed.

Lemma b_zero_left {x y : R} : bnd (Some (0 # 1), Some (0 # 1)) x -> bnd (Some (0 # 1), Some (0 # 1)) (x * y).
Proof.
  intros [A B]. at_ends. rewrite Q2R_whole in *. replace x with 0 by lra.
  rewrite Rmult_0_l. split; at_ends; rewrite Q2R_whole; lra.
Qed.
Lemma b_swap {i : ends} {x y : R} : bnd i (y * x) -> bnd i (x * y).
Proof. now rewrite Rmult_comm. Qed.
Lemma b_opposite {i : ends} {x : R} : bnd i x -> bnd (opposite i) (- x).
Proof.
  destruct i as [[a |] [b |]]; intros [A B]; split; at_ends; try exact I; rewrite Q2R_opp; lra.
Qed.
Lemma b_opposite_left {i : ends} {x y : R} : bnd i (- x * y) -> bnd (opposite i) (x * y).
Proof. intros H. apply b_opposite in H. now replace (x * y) with (- (- x * y)) by ring. Qed.
Lemma b_corners (l h : Q) {a b c d : Q} {x y : R} :
  (Qle_bool l (a * c) && Qle_bool l (a * d) && Qle_bool l (b * c) && Qle_bool l (b * d) &&
   (Qle_bool (a * c) h && Qle_bool (a * d) h && Qle_bool (b * c) h && Qle_bool (b * d) h))%bool
  = true ->
  bnd (Some a, Some b) x -> bnd (Some c, Some d) y -> bnd (Some l, Some h) (x * y).
Proof.
  rewrite !Bool.andb_true_iff. intros [[[[A B] C] D] [[[E F] G] H]] [X Y] [Z W]. at_ends.
  apply le_of_bool in A, B, C, D, E, F, G, H. rewrite Q2R_mult in *.
  set (p := Q2R a) in *. set (q := Q2R b) in *. set (r := Q2R c) in *. set (s := Q2R d) in *.
  split; at_ends.
  - destruct (Rle_lt_dec 0 y).
    + apply Rle_trans with (p * y); [| nra]. destruct (Rle_lt_dec 0 p); nra.
    + apply Rle_trans with (q * y); [| nra]. destruct (Rle_lt_dec 0 q); nra.
  - destruct (Rle_lt_dec 0 y).
    + apply Rle_trans with (q * y); [nra |]. destruct (Rle_lt_dec 0 q); nra.
    + apply Rle_trans with (p * y); [nra |]. destruct (Rle_lt_dec 0 p); nra.
Qed.
Lemma b_quadrant (l : Q) {a c : Q} {b d : option Q} {x y : R} :
  (Qle_bool 0 a && Qle_bool 0 c && Qle_bool l (a * c))%bool = true ->
  bnd (Some a, b) x -> bnd (Some c, d) y -> bnd (Some l, None) (x * y).
Proof.
  rewrite !Bool.andb_true_iff. intros [[A B] C] [X _] [Y _]. at_ends.
  apply le_of_bool in A, B, C. rewrite Q2R_mult, ?Q2R_0 in *. split; [| exact I]. at_ends. nra.
Qed.

Fixpoint power_end (q : Q) (k : nat) : Q :=
  match k with O => 1%Q | S k => Qred (q * power_end q k) end.
Lemma Q2R_power (q : Q) (k : nat) : Q2R (power_end q k) = Q2R q ^ k.
Proof.
  induction k as [| k IH]; [exact (Q2R_whole 1) |].
  change (power_end q (S k)) with (Qred (q * power_end q k)). now rewrite Q2R_red, Q2R_mult, IH.
Qed.
Lemma b_power_positive (k : nat) {a : Q} {b : option Q} {x : R} (l : Q) (h : option Q) :
  (Qle_bool 0 a && Qle_bool l (power_end a k) &&
   match h, b with None, _ => true | Some u, Some v => Qle_bool (power_end v k) u | _, _ => false end)%bool
  = true ->
  bnd (Some a, b) x -> bnd (Some l, h) (x ^ k).
Proof.
  assert (P := fun q => Q2R_power q k).
  rewrite !Bool.andb_true_iff. intros [[A B] C] [X Y]. at_ends.
  apply le_of_bool in A, B. rewrite P, ?Q2R_0 in *. split; at_ends.
  - apply Rle_trans with (Q2R a ^ k); [assumption |]. now apply pow_incr.
  - destruct h as [u |]; [| exact I]. destruct b as [v |]; [| discriminate]. at_ends.
    apply le_of_bool in C. rewrite P in C. apply Rle_trans with (Q2R v ^ k); [| assumption].
    apply pow_incr. lra.
Qed.
Lemma b_power_even (k : nat) {i : ends} {x : R} :
  bnd i ((- x) ^ (2 * k)) -> bnd i (x ^ (2 * k)).
Proof.
  intros H. replace (x ^ (2 * k)) with ((- x) ^ (2 * k)); [assumption |].
  rewrite !pow_mult. f_equal. simpl. ring.
Qed.
Lemma b_power_abs (k : nat) {i : ends} {x : R} :
  bnd i (Rabs x ^ (2 * k)) -> bnd i (x ^ (2 * k)).
Proof.
  intros H. replace (x ^ (2 * k)) with (Rabs x ^ (2 * k)); [assumption |].
  rewrite !pow_mult. now rewrite pow2_abs.
Qed.
Lemma b_inverse {a : Q} {b : option Q} {x : R} (l : Q) (h : Q) :
  (Qlt_bool 0 a && Qle_bool 1 (h * a) &&
   match b with Some v => Qle_bool 0 l && Qle_bool (l * v) 1 | None => Qle_bool l 0 end)%bool = true ->
  bnd (Some a, b) x -> bnd (Some l, Some h) (/ x).
Proof.
  rewrite !Bool.andb_true_iff. intros [[A B] C] [X Y]. at_ends.
  apply lt_of_bool in A. apply le_of_bool in B. rewrite Q2R_mult, ?Q2R_0 in *.
  replace (Q2R 1) with 1 in B by (symmetry; exact (Q2R_whole 1)).
  assert (P : 0 < / x) by (apply Rinv_0_lt_compat; lra).
  assert (E : x * / x = 1) by (apply Rinv_r; lra). split; at_ends.
  - destruct b as [v |].
    + rewrite Bool.andb_true_iff in C. destruct C as [C D]. apply le_of_bool in C, D.
      rewrite Q2R_mult, ?Q2R_0 in *. replace (Q2R 1) with 1 in D by (symmetry; exact (Q2R_whole 1)).
      at_ends. nra.
    + apply le_of_bool in C. rewrite Q2R_0 in C. lra.
  - nra.
Qed.
Lemma b_inverse_opposite {i : ends} {x : R} : bnd i (/ - x) -> bnd (opposite i) (/ x).
Proof.
  intros H. apply b_opposite in H. replace (/ x) with (- / - x); [assumption |].
  rewrite Rinv_opp. ring.
Qed.

(* Relations, by the interval of the difference of their sides. *)
Definition is_above (i : ends) : bool :=
  match fst i with Some q => Qlt_bool 0 q | None => false end.
Definition is_least (i : ends) : bool :=
  match fst i with Some q => Qle_bool 0 q | None => false end.
Definition is_below (i : ends) : bool :=
  match snd i with Some q => Qlt_bool q 0 | None => false end.
Definition is_most (i : ends) : bool :=
  match snd i with Some q => Qle_bool q 0 | None => false end.
Lemma b_above {i : ends} {x : R} : is_above i = true -> bnd i x -> 0 < x.
Proof.
  destruct i as [[a |] b]; [| discriminate]. intros H [A _]. at_ends. unfold is_above in H.
  apply lt_of_bool in H. rewrite Q2R_0 in H. lra.
Qed.
Lemma b_least {i : ends} {x : R} : is_least i = true -> bnd i x -> 0 <= x.
Proof.
  destruct i as [[a |] b]; [| discriminate]. intros H [A _]. at_ends. unfold is_least in H.
  apply le_of_bool in H. rewrite Q2R_0 in H. lra.
Qed.
Lemma b_below {i : ends} {x : R} : is_below i = true -> bnd i x -> x < 0.
Proof.
  destruct i as [a [b |]]; [| discriminate]. intros H [_ A]. at_ends. unfold is_below in H.
  apply lt_of_bool in H. rewrite Q2R_0 in H. lra.
Qed.
Lemma b_most {i : ends} {x : R} : is_most i = true -> bnd i x -> x <= 0.
Proof.
  destruct i as [a [b |]]; [| discriminate]. intros H [_ A]. at_ends. unfold is_most in H.
  apply le_of_bool in H. rewrite Q2R_0 in H. lra.
Qed.
Lemma b_lt {i : ends} {a b p : R} : b - a = p -> is_above i = true -> bnd i p -> a < b.
Proof. intros E H B. apply (b_above H) in B. lra. Qed.
Lemma b_not_lt {i : ends} {a b p : R} : b - a = p -> is_most i = true -> bnd i p -> ~ a < b.
Proof. intros E H B. apply (b_most H) in B. lra. Qed.
Lemma b_le {i : ends} {a b p : R} : b - a = p -> is_least i = true -> bnd i p -> a <= b.
Proof. intros E H B. apply (b_least H) in B. lra. Qed.
Lemma b_not_le {i : ends} {a b p : R} : b - a = p -> is_below i = true -> bnd i p -> ~ a <= b.
Proof. intros E H B. apply (b_below H) in B. lra. Qed.
Lemma b_eq {i : ends} {a b p : R} :
  b - a = p -> (is_least i && is_most i)%bool = true -> bnd i p -> a = b.
Proof.
  rewrite Bool.andb_true_iff. intros E [H G] B. assert (C := b_least H B).
  apply (b_most G) in B. lra.
Qed.
Lemma b_not_eq {i : ends} {a b p : R} :
  b - a = p -> (is_above i || is_below i)%bool = true -> bnd i p -> ~ a = b.
Proof.
  rewrite Bool.orb_true_iff. intros E [H | H] B; [apply (b_above H) in B | apply (b_below H) in B];
  lra.
Qed.
Lemma b_point {q r : Q} {x : R} :
  Qle_bool r q = true -> bnd (Some q, Some r) x -> x = Q2R q.
Proof. intros H [A B]. apply le_of_bool in H. at_ends. lra. Qed.
Lemma b_empty {l h : Q} {x : R} : Qlt_bool h l = true -> bnd (Some l, Some h) x -> False.
Proof. intros H [A B]. apply lt_of_bool in H. at_ends. lra. Qed.

(* Ends of a symbol, by a fact that is linear in it. *)
Lemma b_low (q : Q) {p c x : R} : 0 < c -> p = c * (x - Q2R q) -> 0 <= p -> bnd (Some q, None) x.
Proof. intros H -> G. split; [| exact I]. at_ends. nra. Qed.
Lemma b_high (q : Q) {p c x : R} : 0 < c -> p = c * (Q2R q - x) -> 0 <= p -> bnd (None, Some q) x.
Proof. intros H -> G. split; [exact I |]. at_ends. nra. Qed.
Lemma b_low_whole (n : Z) {q : Q} {x : R} :
  is_int x -> Qlt_bool (n - 1 # 1) q = true -> bnd (Some q, None) x -> bnd (Some (n # 1), None) x.
Proof.
  intros H G [A _]. split; [| exact I]. at_ends. apply lt_of_bool in G. rewrite Q2R_whole in *.
  apply next_whole; [assumption |]. rewrite minus_IZR in G. lra.
Qed.
Lemma b_high_whole (n : Z) {q : Q} {x : R} :
  is_int x -> Qlt_bool q (n + 1 # 1) = true -> bnd (None, Some q) x -> bnd (None, Some (n # 1)) x.
Proof.
  intros [m ->] G [_ A]. split; [exact I |]. at_ends. apply lt_of_bool in G.
  rewrite Q2R_whole in *. apply IZR_le. cut (m < n + 1)%Z; [lia |]. apply lt_IZR. lra.
Qed.
Lemma b_low_strict (n : Z) {q p c x : R} :
  is_int x -> 0 < c -> p = c * (x - q) -> IZR n - 1 <= q -> 0 < p -> bnd (Some (n # 1), None) x.
Proof.
  intros H C -> G P. split; [| exact I]. at_ends. rewrite Q2R_whole. apply next_whole; [assumption |].
  nra.
Qed.
Lemma b_high_strict (n : Z) {q p c x : R} :
  is_int x -> 0 < c -> p = c * (q - x) -> q <= IZR n + 1 -> 0 < p -> bnd (None, Some (n # 1)) x.
Proof.
  intros [m ->] C -> G P. split; [exact I |]. at_ends. rewrite Q2R_whole. apply IZR_le.
  cut (m < n + 1)%Z; [lia |]. apply lt_IZR. rewrite plus_IZR. nra.
Qed.
Lemma least_of_equal {p : R} : p = 0 -> 0 <= p.
Proof. lra. Qed.
Lemma least_of_opposite {p q : R} : q = - p -> p = 0 -> 0 <= q.
Proof. lra. Qed.

(* Choices and functions. *)
Lemma b_ite {P : Prop} (d : dec P) {i : ends} {x y : R} :
  bnd i x -> bnd i y -> bnd i (if d then x else y).
Proof. now destruct d. Qed.
Lemma b_ite_true {P : Prop} (d : dec P) {i : ends} {x y : R} :
  P -> bnd i x -> bnd i (if d then x else y).
Proof. destruct d; tauto. Qed.
Lemma b_ite_false {P : Prop} (d : dec P) {i : ends} {x y : R} :
  ~ P -> bnd i y -> bnd i (if d then x else y).
Proof. destruct d; tauto. Qed.
Lemma b_cospi (u : R) : bnd (Some ((-1) # 1), Some (1 # 1)) (cospi u).
Proof. split; at_ends; rewrite Q2R_whole; apply COS_bound. Qed.
Lemma cospi_high_end {a b u h : R} (k : Z) :
  2 * IZR k <= a -> b <= 2 * IZR k + 2 -> a <= u <= b -> cospi a <= h -> cospi b <= h ->
  cospi u <= h.
Proof.
  intros A B [C D] E F. rewrite (cospi_turned a (a - 2 * IZR k) k) in E by ring.
  rewrite (cospi_turned b (b - 2 * IZR k) k) in F by ring.
  rewrite (cospi_turned u (u - 2 * IZR k) k) by ring. destruct (Rle_lt_dec (u - 2 * IZR k) 1).
  - apply Rle_trans with (cospi (a - 2 * IZR k)); [apply cospi_falls_weakly; lra | assumption].
  - apply Rle_trans with (cospi (b - 2 * IZR k)); [| assumption].
    destruct (Req_dec u b) as [-> |]; [right; reflexivity |]. left. apply cospi_rises; lra.
Qed.
Lemma cospi_low_end {a b u l : R} (k : Z) :
  2 * IZR k - 1 <= a -> b <= 2 * IZR k + 1 -> a <= u <= b -> l <= cospi a -> l <= cospi b ->
  l <= cospi u.
Proof.
  intros A B [C D] E F.
  assert (T : forall v, cospi v = - cospi (v + 1))
    by (intros v; rewrite (cospi_turn v (v + 1)) by ring; ring).
  rewrite (T u). rewrite (T a) in E. rewrite (T b) in F. cut (cospi (u + 1) <= - l); [lra |].
  apply (@cospi_high_end (a + 1) (b + 1) _ _ k); lra.
Qed.

Lemma b_cospi_high {a b : Q} {u : R} (k : Z) (h : Q) :
  (Qle_bool (2 * k # 1) a && Qle_bool b (2 * k + 2 # 1))%bool = true ->
  cospi (Q2R a) <= Q2R h -> cospi (Q2R b) <= Q2R h -> bnd (Some a, Some b) u ->
  bnd (None, Some h) (cospi u).
Proof.
  rewrite Bool.andb_true_iff. intros [A B] C D E. apply le_of_bool in A, B.
  rewrite Q2R_whole in A, B. rewrite ?plus_IZR, mult_IZR in A. rewrite plus_IZR, mult_IZR in B. split; [exact I |].
  exact (cospi_high_end k A B E C D).
Qed.
Lemma b_cospi_low {a b : Q} {u : R} (k : Z) (l : Q) :
  (Qle_bool (2 * k - 1 # 1) a && Qle_bool b (2 * k + 1 # 1))%bool = true ->
  Q2R l <= cospi (Q2R a) -> Q2R l <= cospi (Q2R b) -> bnd (Some a, Some b) u ->
  bnd (Some l, None) (cospi u).
Proof.
  rewrite Bool.andb_true_iff. intros [A B] C D E. apply le_of_bool in A, B.
  rewrite Q2R_whole in A, B. rewrite minus_IZR, mult_IZR in A. rewrite plus_IZR, mult_IZR in B. split; [| exact I].
  exact (cospi_low_end k A B E C D).
Qed.
Lemma cospi_two_thirds : cospi (2 / 3) = IZR (-1) / 2.
Proof.
  rewrite (cospi_turn (IZR (-1) / 3) (2 / 3)) by lra.
  rewrite (cospi_even (IZR (-1) / 3) (1 / 3)) by lra. rewrite cospi_third. lra.
Qed.
Lemma exp_weakly (u v : R) : u <= v -> exp u <= exp v.
Proof. intros [H | ->]; [left; now apply exp_increasing | right; reflexivity]. Qed.
Lemma b_exp_low {a : Q} {b : option Q} {u : R} (l : Q) :
  Q2R l <= exp (Q2R a) -> bnd (Some a, b) u -> bnd (Some l, None) (exp u).
Proof. intros H [A _]. split; [| exact I]. eapply Rle_trans; [exact H | apply exp_weakly, A]. Qed.
Lemma b_exp_high {a : option Q} {b : Q} {u : R} (h : Q) :
  exp (Q2R b) <= Q2R h -> bnd (a, Some b) u -> bnd (None, Some h) (exp u).
Proof. intros H [_ A]. split; [exact I |]. eapply Rle_trans; [apply exp_weakly, A | exact H]. Qed.
Lemma b_exp (u : R) : bnd (Some (0 # 1), None) (exp u).
Proof. split; [| exact I]. at_ends. rewrite Q2R_whole. left. apply exp_pos. Qed.
Lemma ln_weakly (u v : R) : 0 < u -> u <= v -> ln u <= ln v.
Proof. intros P [H | ->]; [left; now apply ln_increasing | right; reflexivity]. Qed.
Lemma b_ln_low {a : Q} {b : option Q} {u : R} (l : Q) :
  Qlt_bool 0 a = true -> Q2R l <= ln (Q2R a) -> bnd (Some a, b) u -> bnd (Some l, None) (ln u).
Proof.
  intros P H [A _]. apply lt_of_bool in P. rewrite Q2R_0 in P. split; [| exact I].
  eapply Rle_trans; [exact H | exact (ln_weakly _ _ P A)].
Qed.
Lemma b_ln_high {a b : Q} {u : R} (h : Q) :
  Qlt_bool 0 a = true -> ln (Q2R b) <= Q2R h -> bnd (Some a, Some b) u -> bnd (None, Some h) (ln u).
Proof.
  intros P H [A B]. apply lt_of_bool in P. rewrite Q2R_0 in P. at_ends. split; [exact I |].
  eapply Rle_trans; [apply ln_weakly; [lra | exact B] | exact H].
Qed.
Lemma atan_weakly (u v : R) : u <= v -> atan u <= atan v.
Proof. intros [H | ->]; [left; now apply atan_increasing | right; reflexivity]. Qed.
Lemma b_atan_low {a : Q} {b : option Q} {u : R} (l : Q) :
  Q2R l <= atan (Q2R a) -> bnd (Some a, b) u -> bnd (Some l, None) (atan u).
Proof. intros H [A _]. split; [| exact I]. eapply Rle_trans; [exact H | apply atan_weakly, A]. Qed.
Lemma b_atan_high {a : option Q} {b : Q} {u : R} (h : Q) :
  atan (Q2R b) <= Q2R h -> bnd (a, Some b) u -> bnd (None, Some h) (atan u).
Proof. intros H [_ A]. split; [exact I |]. eapply Rle_trans; [apply atan_weakly, A | exact H]. Qed.
Lemma b_atan (u : R) : bnd (Some ((-11) # 7), Some (11 # 7)) (atan u).
Proof.
  assert (P : PI < 22 / 7) by (interval with (i_prec 60)).
  destruct (atan_bound u). split; at_ends; unfold Q2R; cbn [Qnum Qden]; lra.
Qed.
Lemma b_floor_low {a : Q} {b : option Q} {u : R} (n : Z) :
  Qle_bool (n # 1) a = true -> bnd (Some a, b) u -> bnd (Some (n # 1), None) (floor u).
Proof.
  intros H [A _]. apply le_of_bool in H. at_ends. split; [| exact I]. at_ends.
  rewrite Q2R_whole in *. apply floor_at_least. lra.
Qed.
Lemma b_floor_high {a : option Q} {b : Q} {u : R} (n : Z) :
  Qlt_bool b (n + 1 # 1) = true -> bnd (a, Some b) u -> bnd (None, Some (n # 1)) (floor u).
Proof.
  intros H [_ A]. apply lt_of_bool in H. at_ends. split; [exact I |]. at_ends.
  rewrite Q2R_whole in *. assert (G : floor u <= IZR (n + 1) + IZR (-1) * 1)
    by (apply floor_at_most; lra). rewrite plus_IZR in G. lra.
Qed.
(* The opposite of a remainder, of any number and of an integer divided by n. *)
Lemma b_fraction (u : R) : bnd (Some ((-1) # 1), Some (0 # 1)) (floor u - u).
Proof.
  assert (A := floor_most u). assert (B := floor_least u).
  split; at_ends; rewrite Q2R_whole; lra.
Qed.
Lemma b_remainder (u : R) (n : positive) :
  is_int (IZR (Z.pos n) * u) -> bnd (Some ((1 - Z.pos n)%Z # n), Some (0 # 1)) (floor u - u).
Proof.
  intros [m M]. assert (A := floor_most u). assert (B := floor_least u).
  assert (P : 0 < IZR (Z.pos n)) by (apply IZR_lt; lia).
  split; at_ends; [| rewrite Q2R_whole; lra].
  unfold Q2R; cbn [Qnum Qden]. destruct (int_floor u) as [k K]. rewrite K in *.
  assert (C : IZR (1 - Z.pos n) <= IZR (Z.pos n * k - m)).
  { apply IZR_le. cut (- Z.pos n < Z.pos n * k - m)%Z; [lia |].
    apply lt_IZR. rewrite opp_IZR, minus_IZR, mult_IZR, <- M. nra. }
  rewrite (minus_IZR (Z.pos n * k)), mult_IZR, <- M in C.
  apply (Rmult_le_reg_l (IZR (Z.pos n))); [exact P |].
  replace (IZR (Z.pos n) * (IZR (1 - Z.pos n) * / IZR (Z.pos n))) with (IZR (1 - Z.pos n))
    by (field; lra). lra.
Qed.
Lemma b_choice {i : ends} {x y z : R} : z = x \/ z = y -> bnd i x -> bnd i y -> bnd i z.
Proof. now intros [-> | ->]. Qed.
Lemma min_choice (x y : R) : Rmin x y = x \/ Rmin x y = y.
Proof. unfold Rmin. destruct (Rle_dec x y); tauto. Qed.
Lemma max_choice (x y : R) : Rmax x y = x \/ Rmax x y = y.
Proof. unfold Rmax. destruct (Rle_dec x y); tauto. Qed.
Lemma b_min_high {a : option Q} {h : Q} {x y : R} :
  bnd (a, Some h) x \/ bnd (a, Some h) y -> bnd (None, Some h) (Rmin x y).
Proof.
  intros H. split; [exact I |]. at_ends. destruct H as [[_ H] | [_ H]]; at_ends.
  - eapply Rle_trans; [apply Rmin_l | exact H].
  - eapply Rle_trans; [apply Rmin_r | exact H].
Qed.
Lemma b_max_low {a : option Q} {l : Q} {x y : R} :
  bnd (Some l, a) x \/ bnd (Some l, a) y -> bnd (Some l, None) (Rmax x y).
Proof.
  intros H. split; [| exact I]. at_ends. destruct H as [[H _] | [H _]]; at_ends.
  - eapply Rle_trans; [exact H | apply Rmax_l].
  - eapply Rle_trans; [exact H | apply Rmax_r].
Qed.
Lemma b_min_low {a b : option Q} {l : Q} {x y : R} :
  bnd (Some l, a) x -> bnd (Some l, b) y -> bnd (Some l, None) (Rmin x y).
Proof. intros [A _] [B _]. at_ends. split; [| exact I]. now apply Rmin_glb. Qed.
Lemma b_max_high {a b : option Q} {h : Q} {x y : R} :
  bnd (a, Some h) x -> bnd (b, Some h) y -> bnd (None, Some h) (Rmax x y).
Proof. intros [_ A] [_ B]. at_ends. split; [exact I |]. now apply Rmax_lub. Qed.
Lemma abs_is_max (x : R) : Rabs x = Rmax x (- x).
Proof.
  unfold Rabs, Rmax. destruct (Rcase_abs x), (Rle_dec x (- x)); lra.
Qed.
Lemma b_abs (x : R) : bnd (Some (0 # 1), None) (Rabs x).
Proof. split; [| exact I]. at_ends. rewrite Q2R_whole. apply Rabs_pos. Qed.
Lemma b_unknown (x : R) : bnd (None, None) x.
Proof. split; exact I. Qed.
Lemma b_pi : bnd (Some (314159265 # 100000000), Some (314159266 # 100000000)) PI.
Proof. split; at_ends; unfold Q2R; cbn [Qnum Qden]; interval with (i_prec 60). Qed.
Lemma b_sgn (x : R) : bnd (Some ((-1) # 1), Some (1 # 1)) (sgn x).
Proof.
  split; at_ends; rewrite Q2R_whole; unfold sgn; destruct (Rlt_dec 0 x); try lra;
  destruct (Rlt_dec x 0); lra.
Qed.
Lemma pw_base_weakly (a b x : R) : 0 < a -> a <= b ->
  forall c, a <= c <= b -> pw c x <= Rmax (pw a x) (pw b x) /\ Rmin (pw a x) (pw b x) <= pw c x.
Proof.
  intros H G c [C D]. destruct (Rtotal_order x 0) as [N | [-> | P]].
  - assert (A := pw_reversed a c x H C N). assert (B := pw_reversed c b x (Rlt_le_trans _ _ _ H C) D N).
    split; [eapply Rle_trans; [exact A | apply Rmax_l] | eapply Rle_trans; [apply Rmin_r | exact B]].
  - rewrite !pw_exponent_zero by reflexivity. split; [apply Rmax_l | apply Rmin_l].
  - assert (A := pw_monotone a c x (Rlt_le _ _ H) C P).
    assert (B := pw_monotone c b x (Rlt_le _ _ (Rlt_le_trans _ _ _ H C)) D P).
    split; [eapply Rle_trans; [exact B | apply Rmax_r] | eapply Rle_trans; [apply Rmin_l | exact A]].
Qed.
Lemma pw_exponent_weakly (b x y : R) : 0 < b ->
  forall e, x <= e <= y -> pw b e <= Rmax (pw b x) (pw b y) /\ Rmin (pw b x) (pw b y) <= pw b e.
Proof.
  intros H e [C D]. destruct (Rle_lt_dec b 1).
  - assert (A := pw_falls b x e H r C). assert (B := pw_falls b e y H r D).
    split; [eapply Rle_trans; [exact A | apply Rmax_l] | eapply Rle_trans; [apply Rmin_r | exact B]].
  - assert (G : 1 <= b) by lra. assert (A := pw_grows b x e G C). assert (B := pw_grows b e y G D).
    split; [eapply Rle_trans; [exact B | apply Rmax_r] | eapply Rle_trans; [apply Rmin_l | exact A]].
Qed.
Definition in_ends (l h : Q) (z : R) : Prop := Q2R l <= z <= Q2R h.
Lemma b_pw {a b x y : Q} {u v : R} (l h : Q) :
  Qlt_bool 0 a = true ->
  in_ends l h (pw (Q2R a) (Q2R x)) -> in_ends l h (pw (Q2R a) (Q2R y)) ->
  in_ends l h (pw (Q2R b) (Q2R x)) -> in_ends l h (pw (Q2R b) (Q2R y)) ->
  bnd (Some a, Some b) u -> bnd (Some x, Some y) v -> bnd (Some l, Some h) (pw u v).
Proof.
  intros P A B C D [E F] [G H]. at_ends. apply lt_of_bool in P. rewrite Q2R_0 in P.
  unfold in_ends in *.
  assert (Pu : 0 < u) by lra.
  destruct (pw_exponent_weakly u (Q2R x) (Q2R y) Pu v (conj G H)) as [S T].
  destruct (pw_base_weakly (Q2R a) (Q2R b) (Q2R x) P (Rle_trans _ _ _ E F) u (conj E F)) as [U V].
  destruct (pw_base_weakly (Q2R a) (Q2R b) (Q2R y) P (Rle_trans _ _ _ E F) u (conj E F)) as [W Z].
  split; at_ends.
  - eapply Rle_trans; [| exact T]. apply Rmin_glb; eapply Rle_trans; [| exact V | | exact Z];
    apply Rmin_glb; lra.
  - eapply Rle_trans; [exact S |]. apply Rmax_lub; eapply Rle_trans; [exact U | | exact W |];
    apply Rmax_lub; lra.
Qed.
Lemma b_pw_zero {a : Q} {b y : option Q} {x : Q} {u v : R} :
  (Qle_bool 0 a && Qlt_bool 0 x)%bool = true -> bnd (Some a, b) u -> bnd (Some x, y) v ->
  bnd (Some (0 # 1), None) (pw u v).
Proof.
  rewrite Bool.andb_true_iff. intros [P G] [A _] [B _]. at_ends. apply le_of_bool in P.
  apply lt_of_bool in G. rewrite Q2R_0 in *. split; [| exact I]. at_ends. rewrite Q2R_whole.
  apply pw_least_zero; lra.
Qed.
Lemma b_pw_positive {a : Q} {b : option Q} {u v : R} :
  Qlt_bool 0 a = true -> bnd (Some a, b) u -> bnd (Some (0 # 1), None) (pw u v).
Proof.
  intros P [A _]. at_ends. apply lt_of_bool in P. rewrite Q2R_0 in *. split; [| exact I]. at_ends.
  rewrite Q2R_whole. left. apply pw_above_zero. lra.
Qed.
Lemma b_pw_rising {y : option Q} {a x : Q} {u v : R} (c h : Q) :
  (Qle_bool 0 a && Qlt_bool 0 x && Qle_bool c 1 && Qlt_bool 0 c)%bool = true ->
  pw (Q2R c) (Q2R x) <= Q2R h -> bnd (Some a, Some c) u -> bnd (Some x, y) v ->
  bnd (None, Some h) (pw u v).
Proof.
  rewrite !Bool.andb_true_iff. intros [[[P G] H] J] K [A B] [C _]. at_ends.
  apply le_of_bool in P, H. apply lt_of_bool in G, J. rewrite Q2R_0 in *.
  replace (Q2R 1) with 1 in H by (symmetry; exact (Q2R_whole 1)). split; [exact I |]. at_ends.
  apply Rle_trans with (pw (Q2R c) v); [apply pw_monotone; lra |].
  apply Rle_trans with (pw (Q2R c) (Q2R x)); [apply pw_falls; lra | assumption].
Qed.

(* Powers of an interval that is open, or that begins at 0. *)
Lemma pw_base_above (a u v : R) : 0 < a -> a <= u -> 0 <= v -> pw a v <= pw u v.
Proof.
  intros H G [P | <-]; [apply pw_monotone; lra |]. rewrite !pw_exponent_zero by reflexivity. lra.
Qed.
Lemma pw_base_above_falling (a u v : R) : 0 < a -> a <= u -> v <= 0 -> pw u v <= pw a v.
Proof.
  intros H G [P | ->]; [now apply pw_reversed |]. rewrite !pw_exponent_zero by reflexivity. lra.
Qed.
Lemma b_pw_base_low {a x y : Q} {b : option Q} {u v : R} (l : Q) :
  (Qlt_bool 0 a && Qle_bool 0 x)%bool = true ->
  Q2R l <= pw (Q2R a) (Q2R x) -> Q2R l <= pw (Q2R a) (Q2R y) ->
  bnd (Some a, b) u -> bnd (Some x, Some y) v -> bnd (Some l, None) (pw u v).
Proof.
  rewrite Bool.andb_true_iff. intros [P G] C D [A _] [E F]. at_ends. apply lt_of_bool in P.
  apply le_of_bool in G. rewrite Q2R_0 in *. split; [| exact I]. at_ends.
  apply Rle_trans with (pw (Q2R a) v); [| apply pw_base_above; lra].
  eapply Rle_trans; [| exact (proj2 (pw_exponent_weakly _ _ _ P v (conj E F)))].
  now apply Rmin_glb.
Qed.
Lemma b_pw_base_high {a x y : Q} {b : option Q} {u v : R} (h : Q) :
  (Qlt_bool 0 a && Qle_bool y 0)%bool = true ->
  pw (Q2R a) (Q2R x) <= Q2R h -> pw (Q2R a) (Q2R y) <= Q2R h ->
  bnd (Some a, b) u -> bnd (Some x, Some y) v -> bnd (None, Some h) (pw u v).
Proof.
  rewrite Bool.andb_true_iff. intros [P G] C D [A _] [E F]. at_ends. apply lt_of_bool in P.
  apply le_of_bool in G. rewrite Q2R_0 in *. split; [exact I |]. at_ends.
  apply Rle_trans with (pw (Q2R a) v); [apply pw_base_above_falling; lra |].
  eapply Rle_trans; [exact (proj1 (pw_exponent_weakly _ _ _ P v (conj E F))) |].
  now apply Rmax_lub.
Qed.
Lemma b_pw_exponent_low {a b x : Q} {y : option Q} {u v : R} (l : Q) :
  Qle_bool 1 a = true ->
  Q2R l <= pw (Q2R a) (Q2R x) -> Q2R l <= pw (Q2R b) (Q2R x) ->
  bnd (Some a, Some b) u -> bnd (Some x, y) v -> bnd (Some l, None) (pw u v).
Proof.
  intros P C D [A B] [E _]. at_ends. apply le_of_bool in P.
  replace (Q2R 1) with 1 in P by (symmetry; exact (Q2R_whole 1)). split; [| exact I]. at_ends.
  apply Rle_trans with (pw u (Q2R x)); [| apply pw_grows; lra].
  assert (0 < Q2R a) by lra.
  eapply Rle_trans;
    [| exact (proj2 (pw_base_weakly (Q2R a) (Q2R b) (Q2R x) H ltac:(lra) u (conj A B)))].
  now apply Rmin_glb.
Qed.
Lemma b_pw_exponent_high {a b x : Q} {y : option Q} {u v : R} (h : Q) :
  (Qlt_bool 0 a && Qle_bool b 1)%bool = true ->
  pw (Q2R a) (Q2R x) <= Q2R h -> pw (Q2R b) (Q2R x) <= Q2R h ->
  bnd (Some a, Some b) u -> bnd (Some x, y) v -> bnd (None, Some h) (pw u v).
Proof.
  rewrite Bool.andb_true_iff. intros [P G] C D [A B] [E _]. at_ends. apply lt_of_bool in P.
  apply le_of_bool in G. rewrite Q2R_0 in *.
  replace (Q2R 1) with 1 in G by (symmetry; exact (Q2R_whole 1)). split; [exact I |]. at_ends.
  apply Rle_trans with (pw u (Q2R x)); [apply pw_falls; lra |].
  eapply Rle_trans;
    [exact (proj1 (pw_base_weakly (Q2R a) (Q2R b) (Q2R x) P ltac:(lra) u (conj A B))) |].
  now apply Rmax_lub.
Qed.
Lemma b_pw_corner_low {a x : Q} {b y : option Q} {u v : R} (l : Q) :
  (Qle_bool 1 a && Qle_bool 0 x)%bool = true -> Q2R l <= pw (Q2R a) (Q2R x) ->
  bnd (Some a, b) u -> bnd (Some x, y) v -> bnd (Some l, None) (pw u v).
Proof.
  rewrite Bool.andb_true_iff. intros [P G] C [A _] [E _]. at_ends. apply le_of_bool in P, G.
  rewrite ?Q2R_0 in *. replace (Q2R 1) with 1 in P by (symmetry; exact (Q2R_whole 1)).
  split; [| exact I]. at_ends. apply Rle_trans with (pw (Q2R a) (Q2R x)); [assumption |].
  apply Rle_trans with (pw (Q2R a) v); [apply pw_grows; lra | apply pw_base_above; lra].
Qed.
Lemma b_pw_from_zero_high {a b x y : Q} {u v : R} (h : Q) :
  (Qle_bool 0 a && Qlt_bool 0 x && Qlt_bool 0 b)%bool = true ->
  pw (Q2R b) (Q2R x) <= Q2R h -> pw (Q2R b) (Q2R y) <= Q2R h ->
  bnd (Some a, Some b) u -> bnd (Some x, Some y) v -> bnd (None, Some h) (pw u v).
Proof.
  rewrite !Bool.andb_true_iff. intros [[P G] H] C D [A B] [E F]. at_ends. apply le_of_bool in P.
  apply lt_of_bool in G, H. rewrite ?Q2R_0 in *. split; [exact I |]. at_ends.
  apply Rle_trans with (pw (Q2R b) v); [apply pw_monotone; lra |].
  eapply Rle_trans; [exact (proj1 (pw_exponent_weakly _ _ _ H v (conj E F))) |].
  now apply Rmax_lub.
Qed.
Lemma b_pw_of_zero {a b x : Q} {y : option Q} {u v : R} :
  (Qle_bool 0 a && Qle_bool b 0 && Qlt_bool 0 x)%bool = true ->
  bnd (Some a, Some b) u -> bnd (Some x, y) v -> bnd (Some (0 # 1), Some (0 # 1)) (pw u v).
Proof.
  rewrite !Bool.andb_true_iff. intros [[P G] H] [A B] [E _]. at_ends. apply le_of_bool in P, G.
  apply lt_of_bool in H. rewrite ?Q2R_0 in *. rewrite (pw_zero_base u v) by lra.
  split; at_ends; rewrite Q2R_whole; lra.
Qed.
Ltac numeric := unfold in_ends, Q2R; cbn [Qnum Qden];
  rewrite ?pw_positive_base by lra; unfold Rpower;
  first [lra | split; interval with (i_prec 130) | interval with (i_prec 130)].
Ltac numeric_power lemma := unfold in_ends, Q2R; cbn [Qnum Qden]; rewrite lemma; lra.
Lemma b_point_whole (n : Z) {x : R} : bnd (Some (n # 1), Some (n # 1)) x -> x = IZR n.
Proof. intros [A B]. at_ends. rewrite Q2R_whole in *. lra. Qed.
Ltac apply_range b := destruct b as [? ?]; unfold Q2R in *; cbn [fst snd above_low below_high Qnum Qden] in *.
Ltac computed := vm_compute; exact eq_refl.
Ltac by_interval := interval with (i_prec 130).
