"""The PyTorch OSS benchmark database (v3): a record per metric, which dashboards and policies use."""

from steelyard.model.dialect import Dialect

DIALECT = Dialect(
    "v3",
    "The PyTorch OSS benchmark database (v3): check, merge, upload, policy, convert.",
    results="steelyard.dialects.v3.results",
    export="steelyard.dialects.v3.export",
    command="steelyard.dialects.v3.command:v3",
)
