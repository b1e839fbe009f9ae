"""An optimizer step as an ONNX graph: fits a line in onnxruntime, without torch."""

import numpy as np

import closedform as cf

STEPS = 200


def main() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(256, 3)).astype(np.float32)
    truth = np.array([[2.0], [-1.0], [0.5]], dtype=np.float32)
    y = x @ truth + 3

    lr = cf.schedules.linear(0, 0.1, 10).then(cf.schedules.cosine(0.1, 0, STEPS - 10))
    rule = cf.optimizers.adamw(lr=lr, betas=(0.9, 0.95), weight_decay=0)
    params = {"w": np.zeros((3, 1), np.float32), "b": np.zeros(1, np.float32)}
    session = cf.OptimizerSession(rule, params=params)

    for step in range(STEPS):
        error = x @ session.params["w"] + session.params["b"] - y
        grads = {"w": 2 * x.T @ error / len(x), "b": 2 * error.mean(axis=0)}
        session.step(grads)
        if step % 50 == 0:
            print(f"step {step:>3}: loss {float((error**2).mean()):.6f}, lr {lr(step):.4g}")

    print("w:", session.params["w"].ravel().round(3), " b:", session.params["b"].round(3))
    print("states:", ", ".join(session.states))


if __name__ == "__main__":
    main()
