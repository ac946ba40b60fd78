"""PARAM: operator benchmarks from JSON configs."""

from steelyard.model.dialect import Dialect, Program

DIALECT = Dialect(
    "param",
    "PyTorch operators from a PARAM config (run_benchmark).",
    config="steelyard.dialects.param.config",
    results="steelyard.dialects.param.results",
    command="steelyard.dialects.param.command:command",
    convert="steelyard.dialects.param.native",
    export="steelyard.dialects.param.export",
    programs=(
        Program("param-replay", "An execution trace replayed (et_replay).", "steelyard.dialects.param.replaying:command"),
        Program("param-nsys", "Where the time of a run under nsys went (nsys_analysis).", "steelyard.dialects.param.command:analyse_nsys"),
    ),
)
