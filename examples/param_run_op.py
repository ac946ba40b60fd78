"""An operator from a config that is written in Python: run it in a worker, then call by call in this process.

python param_run_op.py
"""

from steelyard.param import config, measure_call, run, spec, tensor, value


def main() -> None:
    product = config("torch.mm", [spec(tensor(128, 128), tensor(128, 128)), spec(tensor(256, 64), tensor(64, 256))])
    layer = config("torch.nn.Linear", spec(tensor(32, 64)), builds=spec(64, 16, bias=value("bool", False)))

    for record in run([product, layer], warmup=2, iterations=10, backward=True):
        print(f"{record['op_name']}|{record['id']}  {record['steelyard']['status']}")
        for name, figures in record["steelyard"]["statistics"].items():
            print(f"  {name}: median {figures['median'] * 1e6:.1f} µs of {figures['n']} calls")

    import torch

    metric = measure_call(torch.mm, [torch.ones(64, 64), torch.ones(64, 64)], name="torch.mm", iterations=3)
    print("here:", [f"{time:.4f} ms" for time in metric["forward"]["measure.time"]])


if __name__ == "__main__":
    main()
