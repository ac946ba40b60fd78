"""From an experiment to jobs: every name checked, every case settled, in an order that never changes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard import registry
from steelyard.engine.filters import Filters
from steelyard.engine.names import check_modes, select, settle
from steelyard.engine.place import Place
from steelyard.engine.plan import Plan, expand
from steelyard.engine.sides import BaseSide, base_of
from steelyard.engine.waits import estimate
from steelyard.errors import NothingMeasured, UsageError
from steelyard.model.case import Case
from steelyard.model.define import Variant
from steelyard.model.experiment import Experiment, Matrix, Rule, Settings
from tests.engine.planned import BOTH, CATALOGUE, changed

KEY = "0" * 12


def plan(*matrices: Matrix, **rest: Any) -> Plan:
    return expand(Experiment(matrix=matrices, **rest), CATALOGUE)


def ids(found: Plan) -> list[str]:
    return [job.case.id for job in found.jobs]


class TestExpansion:
    def test_axes_and_ways_are_multiplied_in_written_order(self) -> None:
        found = plan(Matrix(("op/one",), {"n": (32, 8)}, variant=("fused", "eager"), threads=(1, 2)))
        assert ids(found) == [
            f"op/one[dtype=fp32,fast=false,n={n}]@numpy/{variant}:eval{threads}"
            for n in (32, 8)
            for threads in ("", ":threads=2")
            for variant in ("fused", "eager")
        ]

    def test_the_order_never_changes(self) -> None:
        matrices = (Matrix(("op/*",), variant=("eager", "plain")), Matrix(("tag:smoke",), backend=("torch",)))
        assert ids(plan(*matrices)) == ids(plan(*matrices))
        assert ids(plan(Matrix(("op/two", "op/one"))))[0].startswith("op/two")

    def test_what_is_left_out_takes_its_default(self) -> None:
        assert ids(plan(BOTH)) == [
            "op/one[dtype=fp32,fast=false,n=8]@numpy/eager:eval",
            "op/one[dtype=fp32,fast=false,n=16]@numpy/eager:eval",
            "op/two[k=1,scale=0.5]@numpy/eager:eval",
        ]

    def test_a_backend_has_its_usual_variant_where_none_is_named(self) -> None:
        plain = Matrix(("op/matmul",), backend=("torch", "jax", "tensorflow"))
        cases = expand(Experiment(matrix=(plain,)), registry.catalogue()).jobs
        assert [(job.case.backend, job.case.variant) for job in cases] == [("torch", "eager"), ("jax", "jit"), ("tensorflow", "graph")]
        assert [job.fresh for job in cases] == [False, True, True]
        asked = expand(Experiment(matrix=(replace(plain, variant=("eager",)),)), registry.catalogue()).jobs
        assert [(job.case.variant, job.fresh) for job in asked] == [("eager", False), ("eager", True), ("eager", True)]

    def test_axes_override_and_need_only_one_taker(self) -> None:
        assert ids(plan(replace(BOTH, axes={"k": (5, 6), "n": (3,)}))) == [
            "op/one[dtype=fp32,fast=false,n=3]@numpy/eager:eval",
            "op/two[k=5,scale=0.5]@numpy/eager:eval",
            "op/two[k=6,scale=0.5]@numpy/eager:eval",
        ]

    def test_a_size_stands_for_several_axes_and_an_axis_beside_it_wins(self) -> None:
        assert ids(plan(Matrix(("op/one",), {"size": ("big",)}))) == ["op/one[dtype=fp32,fast=false,n=4096]@numpy/eager:eval"]
        assert ids(plan(Matrix(("op/one",), {"size": ("big",), "n": (7,)}))) == ["op/one[dtype=fp32,fast=false,n=7]@numpy/eager:eval"]

    def test_all_wrong_names_are_told_at_once_each_where_it_stands(self) -> None:
        first = Matrix(
            ("op/oen", "op/one"), {"n": (8, "many"), "dtpye": ("fp32",)}, backend=("numpyy",), variant=("fusd",), origin="a.toml  matrix[0]"
        )
        with pytest.raises(UsageError, match="7 mistakes") as caught:
            plan(first, Matrix(("op/two",), variant=("eagre",), origin="a.toml  matrix[1]"), include=("op/three@numpy/eager:eval",))
        told = caught.value.why.split("\n  ")
        names = ("op/oen", "dtpye", "many", "numpyy", "fusd", "eagre", "op/three")
        assert all(sum(f"'{name}'" in line for line in told) == 1 for name in names) and len(told) == len(names)
        assert [line.partition("  no")[0] for line in told if "eagre" in line] == ["a.toml  matrix[1]"]

    def test_one_name_wrong_for_many_workloads_is_one_mistake(self) -> None:
        with pytest.raises(UsageError, match="no variant of op/one named 'fusd'"):
            plan(Matrix(("op/one", "op/two"), variant=("fusd",)))

    @pytest.mark.parametrize("size", ["hug", {"a": 1}, 3, None])
    def test_a_size_that_a_workload_does_not_have_is_told(self, size: Any) -> None:
        with pytest.raises(UsageError, match="no size of op/one named"):
            plan(Matrix(("op/one",), {"size": (size,)}))

    def test_the_same_case_twice_is_one(self) -> None:
        assert len(plan(BOTH, BOTH, include=("op/two@numpy/eager:eval",)).jobs) == 3

    def test_flags_devices_and_modes_are_ways_too(self) -> None:
        found = plan(Matrix(("op/two",), mode=("eval", "fwd"), device=("cpu", "cuda"), flags=({}, {"X": "1"})))
        assert len(found.jobs) == 8
        assert 'op/two[k=1,scale=0.5]@numpy/eager:fwd:device=cuda:flag.X="1"' in ids(found)
        assert {job.place.flags for job in found.jobs} == {(), (("X", "1"),)}

    def test_included_ids_are_settled_like_any_other(self) -> None:
        found = plan(include=("op/one[n=99,dtype=float32]@torch/eager:eval:threads=3", Case("op/two", backend="numpy")))
        assert ids(found) == ["op/one[dtype=fp32,fast=false,n=99]@torch/eager:eval:threads=3", "op/two[k=1,scale=0.5]@numpy/eager:eval"]
        assert found.jobs[0].place.threads == 3

    @given(st.permutations(["op/one", "op/two", "fake/hidden"]), st.sampled_from(["case", "workload", "none"]))
    def test_every_job_is_settled_whatever_the_order(self, names: list[str], isolate: Any) -> None:
        found = plan(Matrix(tuple(names)), settings=Settings(isolate=isolate))
        assert len(found.jobs) == 4
        assert all(settle(job.case, CATALOGUE) == job.case for job in found.jobs)


class TestNames:
    @pytest.mark.parametrize(
        ("matrix", "message"),
        [
            (Matrix(("op/onne",)), r"no workload named 'op/onne'\n  did you mean op/one.*steelyard list 'op/\*'"),
            (Matrix(("nothing-like-it",)), "all: steelyard list$"),
            (Matrix(("layer/*",)), "no workload named 'layer/"),
            (Matrix(("tag:smokey",)), r"no tag named 'smokey'\n  did you mean smoke"),
            (Matrix(("op/one",), {"m": (1,)}), "no axis named 'm'"),
            (Matrix(("op/one",), {"dtyp": (1,)}), "did you mean dtype"),
            (Matrix(("op/one",), {"size": ("bigg",)}), r"no size of op/one named 'bigg'\n  did you mean big"),
            (Matrix(("op/one",), {"dtype": ("fp33",)}), "no dtype named 'fp33'"),
            (Matrix(("op/one",), backend=("numpie",)), "did you mean numpy"),
            (Matrix(("op/one",), variant=("fusd",)), "did you mean fused"),
            (Matrix(("op/two",), variant=("fused",)), "no variant of op/two named 'fused'"),
            (Matrix(("op/one",), variant=("plain+fusd",)), "did you mean fused"),
            (Matrix(("op/one",), variant=("fused[tyle=2]",)), r"no option of variant fused named 'tyle'\n  did you mean tile"),
            (Matrix(("op/one",), mode=("evil",)), "did you mean eval"),
        ],
    )  # fmt: skip
    def test_an_unknown_one_is_an_error_with_the_nearest(self, matrix: Matrix, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            plan(matrix)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("op/onne@numpy/eager:eval", "did you mean op/one"),
            ("op/one[m=1]@numpy/eager:eval", "no axis of op/one named 'm'"),
            ("op/one@numpie/eager:eval", "did you mean numpy"),
            ("op/one@numpy/fusd:eval", "did you mean fused"),
            ("op/one[n=]@numpy/eager:eval", "not a case id"),
        ],
    )
    def test_so_it_is_in_an_included_id(self, text: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            plan(include=(text,))

    def test_a_wrong_name_from_a_file_is_told_with_its_place(self) -> None:
        with pytest.raises(UsageError) as caught:
            plan(Matrix(("op/onne",), origin="exp.toml:3  matrix[0]"))
        assert caught.value.where == "exp.toml:3  matrix[0]"

    def test_a_variant_to_weigh_against_is_checked_as_well(self) -> None:
        with pytest.raises(UsageError, match="did you mean fused"):
            plan(Matrix(("op/one",)), settings=Settings(vs="fuzed"))

    def test_modes_typed_on_the_command_line(self) -> None:
        check_modes(["eval", "bwd"])
        with pytest.raises(UsageError, match="did you mean train"):
            check_modes(["eval", "trane"])

    def test_globs_and_tags(self) -> None:
        assert select("op/*", CATALOGUE) == ["op/one", "op/two"]
        assert select("*", CATALOGUE) == ["op/one", "op/two"]
        assert select("op/[a-s]*", CATALOGUE) == ["op/one"]
        assert select("fake/*", CATALOGUE) == select("fake/hidden", CATALOGUE) == ["fake/hidden"]
        assert select("tag:slow", CATALOGUE) == ["op/two"]
        assert select("tier:1", CATALOGUE) == select("tag:tier:1", CATALOGUE) == ["op/two"]


class TestTypes:
    @pytest.mark.parametrize(
        ("axes", "message"),
        [
            ({"n": ("many",)}, "axis n of op/one takes a number, not 'many'"),
            ({"n": ([1, 2],)}, "takes a number"),
            ({"n": (1.5,)}, "takes a whole number, not 1.5"),
            ({"fast": (1,)}, "is true or false, not 1"),
            ({"fast": ("yes",)}, "is true or false"),
        ],
    )  # fmt: skip
    def test_a_value_of_the_wrong_kind_is_refused(self, axes: dict[str, tuple[Any, ...]], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            plan(Matrix(("op/one",), axes))

    def test_a_whole_number_is_a_number(self) -> None:
        assert ids(plan(Matrix(("op/two",), {"scale": (2,)}))) == ["op/two[k=1,scale=2]@numpy/eager:eval"]


class TestRules:
    def test_a_rule_drops_what_it_matches_and_is_named_for_it(self) -> None:
        rules = (Rule({"workload": "op/o*", "axes.n": [16, 32]}, "too large"), Rule({"variant": "plain"}), Rule({"axes.k": 1}))
        found = plan(Matrix(("op/one", "op/two"), variant=("eager", "plain")), exclude=rules)
        assert ids(found) == ["op/one[dtype=fp32,fast=false,n=8]@numpy/eager:eval"]
        size, large = "workload=op/o*, axes.n=[16, 32]", "too large"
        assert [(dict(item.case.params).get("n"), item.case.variant, str(item.rule), item.rule.reason) for item in found.dropped] == [
            (8, "plain", "variant=plain", ""),
            (16, "eager", size, large),
            (16, "plain", size, large),
            (None, "eager", "axes.k=1", ""),
            (None, "plain", "variant=plain", ""),
        ]

    @pytest.mark.parametrize(
        "match",
        [
            {"backend": "numpy"}, {"device": "cpu"}, {"mode": ["fwd", "eval"]}, {"threads": 1}, {"flags.X": "1"}, {"axes.dtype": "fp*"},
            {"workload": "op/one", "axes.fast": False},
        ],
    )  # fmt: skip
    def test_any_field_can_be_matched(self, match: dict[str, Any]) -> None:
        with pytest.raises(NothingMeasured, match="2 cases were all dropped"):
            plan(Matrix(("op/one",), flags=({"X": "1"},)), exclude=(Rule(match),))

    @pytest.mark.parametrize(
        "match", [{"backend": "torch"}, {"axes.n": 8.5}, {"axes.nn": 8}, {"flags.Y": "1"}, {"workload": "op/one", "axes.n": 1}]
    )
    def test_all_of_a_rule_must_match(self, match: dict[str, Any]) -> None:
        found = plan(Matrix(("op/one",), flags=({"X": "1"},)), exclude=(Rule(match),))
        assert (len(found.jobs), found.dropped) == (2, ())

    def test_a_list_is_a_choice_of_values_or_one_value_that_is_a_list(self) -> None:
        shaped = Case("op/one", (("shape", [8, 3]), ("n", 8)))
        assert Rule({"axes.shape": [8, 3]}).fits(shaped) and Rule({"axes.n": [8, 16]}).fits(shaped)
        assert not Rule({"axes.shape": [8]}).fits(shaped) and not Rule({"axes.n": [[8]]}).fits(shaped)

    def test_a_tag_is_a_key_too(self) -> None:
        found = plan(BOTH, exclude=(Rule({"tag": "sl*"}, "no time"),))
        assert [(item.case.workload, item.rule.reason) for item in found.dropped] == [("op/two", "no time")]

    def test_what_is_denied_stays_part_of_the_experiment(self) -> None:
        rules: dict[str, Any] = {"exclude": (Rule({"axes.n": 16}),), "deny": (Rule({"workload": "op/one"}, "it crashes"),)}
        found = plan(BOTH, **rules)
        assert ids(found) == ["op/two[k=1,scale=0.5]@numpy/eager:eval"]
        assert [(dict(item.case.params)["n"], item.kind) for item in found.dropped] == [(8, "deny"), (16, "exclude")]
        assert [dict(item.case.params)["n"] for item in found.denied] == [8]
        assert found.fingerprint("m") != plan(Matrix(("op/two",))).fingerprint("m")

    def test_rules_that_fit_no_case_are_told_whatever_filters_say(self) -> None:
        used, shadowed, misspelt = (Rule({"workload": name}, "why") for name in ("op/one", "op/*", "op/on"))
        found = expand(Experiment(matrix=(BOTH,), exclude=(used, misspelt), deny=(shadowed,)), CATALOGUE, filters=Filters(drop=("op/one",)))
        assert found.idle == (misspelt,)

    def test_all_denied_is_a_plan_without_jobs(self) -> None:
        found = plan(Matrix(("op/two",)), deny=(Rule({"backend": "numpy"}, "not here"),))
        assert (found.jobs, len(found.denied)) == ((), 1)

    def test_a_denied_base_does_not_run_and_an_excluded_one_does(self) -> None:
        matrix, settings = Matrix(("op/two",), variant=("eager", "plain")), Settings(vs="eager")
        denied = plan(matrix, settings=settings, deny=(Rule({"variant": "eager"}, "it crashes"),))
        assert [(job.case.variant, job.vs) for job in denied.jobs] == [("plain", None)]
        excluded = plan(matrix, settings=settings, exclude=(Rule({"variant": "eager"}),))
        assert [(job.case.variant, job.vs and job.vs.variant) for job in excluded.jobs] == [("eager", None), ("plain", "eager")]

    def test_an_empty_selection_is_never_green(self) -> None:
        with pytest.raises(NothingMeasured, match="the selection is empty"):
            plan()
        with pytest.raises(NothingMeasured):
            plan(Matrix(("op/one",), {"n": ()}))


class TestVariantsOfABackend:
    catalogue = CATALOGUE.extend({"variants": {"native": Variant("native", changed, backends=("torch",)).describe()}}, "test")

    def ways(self, *backends: str, include: tuple[str, ...] = ()) -> list[str]:
        matrix = Matrix(("op/one",), {"n": (8,)}, backend=backends, variant=("eager", "native"))
        found = expand(Experiment(matrix=(matrix,), include=include), self.catalogue)
        assert all("native works with torch" in item.rule.reason for item in found.dropped)
        return [f"{job.case.backend}/{job.case.variant}" for job in found.jobs]

    def test_among_several_backends_it_is_dropped_where_it_does_not_belong(self) -> None:
        assert self.ways("numpy", "torch") == ["numpy/eager", "torch/eager", "torch/native"]

    def test_with_one_backend_or_by_its_id_it_was_asked_for(self) -> None:
        assert self.ways("numpy") == ["numpy/eager", "numpy/native"]
        assert "numpy/native" in self.ways("numpy", "torch", include=("op/one[n=8]@numpy/native:eval",))


class TestEnvironments:
    @pytest.fixture(autouse=True)
    def built(self, apart: Path) -> None:
        for name in ("old", "new"):
            folder = apart / "envs" / name
            (folder / "bin").mkdir(parents=True)
            (folder / "bin" / "python").symlink_to(sys.executable)
            (folder / "steelyard-env.json").write_text('{"stack": "numpy", "packages": {}}')

    def test_a_matrix_runs_in_its_environment_and_so_do_its_bases(self) -> None:
        found = plan(Matrix(("op/one",), {"n": (8,)}, variant=("fused",), env=("old",)), Matrix(("op/two",)), settings=Settings(vs="eager"))
        inside = [Path(job.place.python).parts[-3] == "old" for job in found.jobs]
        assert [(job.case.workload, job.case.variant) for job in found.jobs] == [
            ("op/one", "eager"),
            ("op/one", "fused"),
            ("op/two", "eager"),
        ]
        assert inside == [True, True, False]
        assert [id.endswith(":env=old") for id in ids(found)] == inside

    def test_it_is_an_axis_of_the_matrix_and_a_key_of_rules(self) -> None:
        matrix = Matrix(("op/two",), env=("here", "old", "new"))
        assert ids(plan(matrix)) == [f"op/two[k=1,scale=0.5]@numpy/eager:eval{home}" for home in ("", ":env=old", ":env=new")]
        kept = plan(matrix, exclude=(Rule({"env": "her?"}),), deny=(Rule({"env": "n*"}, "not yet"),))
        assert [job.case.env for job in kept.jobs] == ["old"]
        assert [(item.case.env, str(item.rule)) for item in kept.dropped] == [("", "env=her?"), ("new", "env=n*")]

    def test_one_case_by_its_id_runs_where_it_says(self) -> None:
        [job] = plan(include=("op/two[k=1]@numpy/eager:eval:env=new",)).jobs
        assert Path(job.place.python).parts[-3] == "new"

    def test_cases_with_one_of_their_own_have_no_other_side(self) -> None:
        other = BaseSide("path:there", Place())
        with pytest.raises(UsageError, match=r"cannot be compared with path:there\n.*its own environment\n.*--env"):
            expand(Experiment(matrix=(Matrix(("op/two",), env=("old",)),)), CATALOGUE, other=other)

    def test_one_that_does_not_exist_is_told_with_the_nearest(self) -> None:
        with pytest.raises(UsageError, match="did you mean old"):
            plan(Matrix(("op/two",), env=("olt",)))


class TestJobs:
    def test_weighing_adds_the_base_before_the_cases_it_is_weighed_with(self) -> None:
        found = plan(Matrix(("op/one",), {"n": (8,)}, variant=("fused", "plain")), settings=Settings(vs="eager"))
        assert [(job.case.variant, job.vs and job.vs.variant) for job in found.jobs] == [
            ("eager", None),
            ("fused", "eager"),
            ("plain", "eager"),
        ]
        listed = plan(Matrix(("op/one",), {"n": (8,)}, variant=("fused", "eager")), settings=Settings(vs="eager"))
        assert [(job.case.variant, job.vs and job.vs.variant) for job in listed.jobs] == [("eager", None), ("fused", "eager")]

    def test_each_point_is_weighed_with_its_own_base(self) -> None:
        found = plan(Matrix(("op/one",), variant=("fused",), threads=(1, 2)), settings=Settings(vs="plain"))
        heads = [job for job in found.jobs if job.vs]
        assert len(found.jobs) == 8
        assert all(job.vs == job.case.against("plain") for job in heads)

    def test_one_base_over_backends_runs_on_a_side_of_its_own(self) -> None:
        matrix = Matrix(("op/one",), {"n": (8,)}, backend=("torch", "numpy"), variant=("eager", "plain"))
        found = plan(matrix, settings=Settings(vs="torch/eager"))
        told = [(f"{job.case.backend}/{job.case.variant}", job.vs and f"{job.vs.backend}/{job.vs.variant}") for job in found.jobs]
        assert told == [
            ("torch/eager", None), ("torch/plain", "torch/eager"), ("numpy/eager", "torch/eager"), ("numpy/plain", "torch/eager"),
        ]  # fmt: skip
        assert [job.side and job.side.label for job in found.jobs] == [None, None, "torch/eager", "torch/eager"]
        assert found.jobs[2].scale != found.jobs[3].scale, "each is weighed alone, in processes of its own"
        assert not any(job.side and job.side.fresh for job in found.jobs)
        compiled = plan(matrix, settings=Settings(vs="torch/slow-start"))
        assert {job.side.fresh for job in compiled.jobs if job.side} == {True}

    def test_a_base_with_other_flags_is_a_case_of_its_own_on_a_side_of_its_own(self) -> None:
        matrix = Matrix(("op/one",), {"n": (8,)}, flags=({"A": "1", "B": "2"},))
        found = plan(matrix, settings=Settings(vs="flags:A=3 C='x y'"))
        assert [dict(job.case.flags) for job in found.jobs] == [{"A": "3", "B": "2", "C": "x y"}, {"A": "1", "B": "2"}]
        head = found.jobs[1]
        assert head.vs == found.jobs[0].case and head.side is not None and head.side.label == "flags:A=3 C='x y'"
        assert head.side.layout == "matched" and not found.jobs[0].side
        assert dict(head.place.flags) == {"A": "1", "B": "2"}
        [bare, _] = plan(matrix, settings=Settings(vs="flags:")).jobs
        assert bare.case.flags == ()

    def test_flags_of_a_compiler_go_into_the_variable_that_it_reads(self) -> None:
        found = base_of(Case("op/one", backend="jax"), "flags:--xla_a=true --xla_b=2 N=1")
        assert dict(found.flags) == {"XLA_FLAGS": "--xla_a=true --xla_b=2", "N": "1"}

    @pytest.mark.parametrize(
        ("vs", "said"),
        [("flags:--xla", "no variable for compiler flags"), ("flags:word", "is not a flag"), ("flags:'", "cannot read the flags")],
    )
    def test_words_that_are_no_flags_are_refused(self, vs: str, said: str) -> None:
        with pytest.raises(UsageError, match=said):
            plan(Matrix(("op/one",)), settings=Settings(vs=vs))

    def test_the_same_flags_are_nothing_to_compare(self) -> None:
        with pytest.raises(UsageError, match="nothing to compare with flags:"):
            plan(Matrix(("op/one",)), settings=Settings(vs="flags:"))

    @pytest.mark.parametrize("vs", ["eager", "numpy/eager"])
    def test_a_base_with_nothing_to_weigh_is_a_mistake(self, vs: str) -> None:
        with pytest.raises(UsageError, match=f"nothing to compare with {vs}") as caught:
            plan(Matrix(("op/one",)), settings=Settings(vs=vs))
        assert "-V eager,fused" in caught.value.do
        plan(Matrix(("op/one",), variant=("eager", "plain")), settings=Settings(vs=vs))

    def test_several_backends_each_its_own_base_are_told_how_to_have_one(self) -> None:
        with pytest.raises(UsageError, match="nothing to compare") as caught:
            plan(Matrix(("op/one",), backend=("numpy", "torch")), settings=Settings(vs="eager"))
        assert "numpy/eager for one base over backends" in caught.value.do

    def test_a_backend_alone_is_answered_with_a_base(self) -> None:
        with pytest.raises(UsageError, match="no variant of op/one named 'torch'") as caught:
            plan(Matrix(("op/one",)), settings=Settings(vs="torch"))
        assert "did you mean torch/eager?" in caught.value.do
        with pytest.raises(UsageError, match="no backend named 'torhc'"):
            plan(Matrix(("op/one",)), settings=Settings(vs="torhc/eager"))

    def test_bases_by_case(self) -> None:
        base = Case("op/two", (("k", 1), ("scale", 0.5)), "numpy")
        bases = {base: base, replace(base, params=(("k", 3), ("scale", 0.5))): base}
        found = expand(Experiment(include=("op/two@numpy/eager:eval", "op/two[k=3]@numpy/eager:eval")), CATALOGUE, against=bases)
        assert [(dict(job.case.params)["k"], job.vs) for job in found.jobs] == [(1, None), (3, base)]

    def test_a_variant_that_needs_a_fresh_interpreter_takes_its_unit_with_it(self) -> None:
        matrices = Matrix(("op/one",), {"n": (8,)}, variant=("eager", "slow-start")), Matrix(("op/two",))
        assert [job.fresh for job in plan(*matrices).jobs] == [True, True, False]
        assert [job.fresh for job in plan(*matrices, settings=Settings(isolate="case")).jobs] == [False, True, False]
        assert [job.fresh for job in plan(*matrices, settings=Settings(isolate="none")).jobs] == [True, True, True]

    def test_so_does_one_that_is_only_weighed_against(self) -> None:
        found = plan(Matrix(("op/one",), {"n": (8,)}), settings=Settings(vs="slow-start", isolate="case"))
        assert [(job.case.variant, job.fresh) for job in found.jobs] == [("slow-start", True), ("eager", True)]

    def test_units_are_as_wide_as_asked(self) -> None:
        def units(isolate: Any) -> int:
            return len({job.unit for job in plan(Matrix(("op/*",), backend=("numpy", "torch")), settings=Settings(isolate=isolate)).jobs})

        assert (units("case"), units("workload"), units("shared"), units("none")) == (6, 4, 4, 2)

    def test_what_starts_fresh_shares_its_worker_with_others_of_its_device(self) -> None:
        matrices = Matrix(("op/one",), {"n": (8,)}, variant=("eager", "slow-start")), Matrix(("op/two",), variant=("slow-start",))
        others = Matrix(("op/two",), device=("cuda",)), Matrix(("op/two",), {"k": (9,)}, threads=(2,), variant=("slow-start",))
        found = plan(*matrices, *others).jobs
        assert [job.unit for job in found] == ["numpy@cpu", "numpy@cpu", "numpy@cpu", "numpy@cuda", "numpy@cpu"]
        assert found[-1].place != found[0].place

    def test_a_limit_on_memory_is_for_one_workload(self) -> None:
        found = plan(Matrix(("op/*",), variant=("slow-start",)), settings=Settings(memory=2**30)).jobs
        assert {job.unit for job in found} == {"op/one@numpy", "op/two@numpy"}

    def test_devices_other_than_the_cpu_start_fresh(self) -> None:
        assert plan(Matrix(("op/two",), device=("cuda",))).jobs[0].fresh

    def test_threads_and_flags_reach_the_place(self) -> None:
        found = expand(Experiment(matrix=(Matrix(("op/two",), threads=(4,), flags=({"A": "b"},)),)), CATALOGUE, place=Place("other-python"))
        assert found.jobs[0].place == Place("other-python", 4, (("A", "b"),))

    def test_more_work_is_estimated_to_take_longer(self) -> None:
        few, many = plan(Matrix(("op/two",))), plan(Matrix(("op/two",), {"k": (1, 2, 3, 4)}))
        weighed = plan(Matrix(("op/two",), {"k": (1, 2, 3, 4)}, variant=("plain",)), settings=Settings(vs="eager"))
        seconds = [estimate(found, KEY).about for found in (few, many, weighed)]
        assert 0 < seconds[0] < seconds[1] < seconds[2] and estimate(weighed, KEY).longest > seconds[2]
        assert estimate(plan(Matrix(("op/two",)), settings=Settings(budget=50.0)), KEY).about > 50


class TestFingerprint:
    def test_what_changes_it(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.py"
        file.write_text("a = 1")
        experiment = Experiment(matrix=(BOTH,), files=(str(file),))
        usual = expand(experiment, CATALOGUE)
        others = [
            expand(replace(experiment, settings=Settings(budget=2.0)), CATALOGUE),
            expand(replace(experiment, settings=Settings(seed=1)), CATALOGUE),
            expand(replace(experiment, matrix=(replace(BOTH, axes={"n": (3,)}),)), CATALOGUE),
            expand(replace(experiment, matrix=(replace(BOTH, threads=(2,)),)), CATALOGUE),
            expand(experiment, CATALOGUE, place=Place("other-python")),
        ]
        seen = [usual.fingerprint("m"), usual.fingerprint("another machine"), *(found.fingerprint("m") for found in others)]
        file.write_text("a = 2")
        seen.append(usual.fingerprint("m"))
        assert len(set(seen)) == len(seen)

    def test_what_does_not(self, tmp_path: Path) -> None:
        one, other = Experiment("a", "words", matrix=(BOTH,)), Experiment("b", matrix=(BOTH,))
        assert expand(one, CATALOGUE).fingerprint("m") == expand(other, CATALOGUE).fingerprint("m")


class TestOddInput:
    """What was once a crash or a silent loss."""

    def test_several_sizes_are_several_points(self) -> None:
        found = plan(Matrix(("op/one",), {"size": ("big", "huge")}))
        assert [dict(job.case.params)["n"] for job in found.jobs] == [4096, 65536]

    def test_a_workload_of_a_package_that_was_not_loaded_is_no_crash(self) -> None:
        listed = CATALOGUE.extend({"workloads": {"acme/add": {"name": "acme/add", "doc": ""}}}, "package acme")
        with pytest.raises(UsageError):
            expand(Experiment(include=("acme/add@numpy/eager:eval",)), listed)

    @pytest.mark.parametrize("value", [True, None])
    def test_true_and_null_are_no_numbers(self, value: Any) -> None:
        with pytest.raises(UsageError):
            plan(Matrix(("op/one",), {"n": (value,)}))
