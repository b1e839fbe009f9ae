"""Use of the bare wheel: `make wheel-smoke` runs this where no extra is installed."""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

import closedform as cf

HEAVY = ("torch", "onnx", "onnxruntime", "sympy")
EXTRAS = ("torch", "matplotlib")
STEPS = (0, 1, 1999, 2000, 2001, 50_000, 100_000, 200_000)


def check_installed() -> None:
    for package in EXTRAS:
        assert importlib.util.find_spec(package) is None, f"{package} is installed: this is void"
    place = Path(cf.__file__).resolve()
    assert "site-packages" in place.parts, f"closedform is read from {place}, not from the wheel"
    assert (place.parent / "py.typed").exists(), "the wheel has no py.typed"


def check_import_is_light() -> None:
    code = f"import sys, closedform; print([m for m in {HEAVY} if m in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True
    )
    assert loaded.stdout.strip() == "[]", f"import closedform loads {loaded.stdout.strip()}"


def check_schedule_runs_in_onnxruntime() -> None:
    warmup = cf.schedules.linear(0, 3e-4, 2000)
    lr = warmup.then(cf.schedules.cosine(3e-4, 3e-5, 98_000))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lr.onnx"
        model = cf.to_onnx(lr, str(path))
        verdict = {entry.key: entry.value for entry in model.metadata_props}
        assert '"status": "PROVED"' in verdict["closedform.translation"], verdict
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (step,) = session.get_inputs()
        for t in STEPS:
            (value,) = session.run(None, {step.name: np.array(t, dtype=np.int64)})
            # The default output is float32: rounded once, so within one part in 2**23 of the value.
            assert np.isclose(float(value), float(lr(t)), rtol=2.0**-23, atol=0), (t, value, lr(t))


def run_command(*words: str) -> str:
    program = Path(sys.executable).with_name("closedform")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def check_command_line() -> None:
    names = run_command("list")
    assert "torch:CosineAnnealingLR" in names, names
    # --strict: exit code 3 where a claim is undecided.
    options = ("--start", "3e-4", "--end", "3e-5", "--steps", "1000")
    assert "9 proved, in" in run_command("verify", "cosine", *options, "--strict")
    assert "2 proved, in" in run_command("verify", "adamw", "--strict")


def check_training_files_train() -> None:
    session = cf.training.TrainSession("train")
    inputs = np.random.default_rng(0).normal(size=(60, 16, 8)).astype(np.float32)
    batches = [(x, x[:, :3].argmax(1)) for x in inputs]
    results = session.fit(batches)
    assert results[-1].loss < results[0].loss / 2, results
    assert session.predict(inputs[0]).shape == (16, 3)
    session.save("trained.safetensors")
    session.load("trained.safetensors")
    print(f"a model trains without torch: loss {results[0].loss:.2f} -> {results[-1].loss:.2f}")


def main() -> None:
    check_installed()
    check_import_is_light()
    print("import closedform loads none of", ", ".join(HEAVY))
    check_schedule_runs_in_onnxruntime()
    print("a schedule compiles, is validated and runs in onnxruntime", onnxruntime.__version__)
    check_command_line()
    print("a cosine and AdamW are proved on the command line, without extras")
    check_training_files_train()


if __name__ == "__main__":
    main()
