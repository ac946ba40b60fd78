"""Stands in for ncu where there is none: runs its program, then writes a raw CSV page of the real form for each input of the batch.

It takes the real tool's options and refuses others; what it should do otherwise stands in FAKE_NCU: `lacks NAME`, `silent`.
"""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

VALUED = {"--log-file", "--nvtx-include", "--target-processes", "--clock-control", "--page", "--print-units", "--metrics"}
BARE = {"--csv", "--nvtx"}
RANGES = ["thread Domain:Push/Pop_Range", "Id:Domain:Start/Stop_Range"]
UNITS = {"gpu__time_duration.sum": "ns", "dram__bytes.sum": "byte"}
VALUES = {"gpu__time_duration.sum": "1,000", "dram__bytes.sum": "2,048"}


def main() -> int:
    words, given = sys.argv[1:], {}
    while words and words[0].startswith("--"):
        name = words.pop(0)
        if name not in VALUED | BARE:
            print(f"==ERROR== unrecognised option '{name}'")
            return 1
        given[name] = words.pop(0) if name in VALUED else ""
    log, metrics, wish = Path(given["--log-file"]), given.get("--metrics", "").split(","), os.environ.get("FAKE_NCU", "").split()
    if wish[:1] == ["lacks"] and wish[1] in metrics:
        log.write_text(f"==ERROR== Failed to find metric {wish[1]}\n")
        return 1
    code = subprocess.run(words, check=False).returncode
    batch = json.loads(Path(words[words.index("-f") + 1]).read_text())
    with log.open("w") as file:
        file.write("==PROF== Connected to process 7 (/usr/bin/python3)\n==PROF== Disconnected from process 7\n")
        if code:
            file.write(f"==ERROR== The application returned an error code ({code}).\n")
        elif wish == ["silent"]:
            file.write("==WARNING== No kernels were profiled.\n")
        else:
            table(csv.writer(file, quoting=csv.QUOTE_ALL), batch, metrics, given["--nvtx-include"])
    return code


def table(out, batch: dict, metrics: list[str], within: str) -> None:  # type: ignore[no-untyped-def]
    names = [f"{name}:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg" for name in RANGES]
    out.writerow(["ID", "Process ID", "Process Name", "Host Name", *names, "Kernel Name", "Context", "Stream", *metrics])
    out.writerow([""] * 9 + [UNITS.get(name, "%") for name in metrics])
    number, device = 0, os.environ["CUDA_VISIBLE_DEVICES"]
    parts = ["forward", *(["backward"] if batch["run_options"]["pass_type"] == "backward" else [])]
    for position, _ in enumerate(batch["op_info"]["config"][0]["input"]):
        for _ in range(batch["run_options"]["iteration"]):
            for part in parts:
                active = [within, f"param_input_{position}_{part}", f"[param|aten::add|0|0|{position}|measure|{part}]"]
                cell = "  ".join(f'"<default domain>:{name}:none:none:none:none:none:none"' for name in active)
                fixed = [number, 7, "python3", "127.0.0.1", "", f"1  {cell} ", f"kernel, {part}", 1, device]
                out.writerow([*fixed, *(VALUES.get(name, "50") for name in metrics)])
                number += 1
    out.writerow([number, 7, "python3", "127.0.0.1", "", "", "stray", 1, device, *("1" for _ in metrics)])


if __name__ == "__main__":
    sys.exit(main())
