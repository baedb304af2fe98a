"""Files of models: written as a whole or not at all; what is no model's is refused in one way."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from dataclasses import asdict, fields, is_dataclass, replace

import numpy as np
import pandas as pd
import pytest

import btnkm
from btnkm import BTNRegressor, Solver, explain
from btnkm.bases import BASES
from btnkm.io import archive, atomic_write, contents, migrate, models


def rows(n=60):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.choice(["x", "y", "z"], n)})
    frame.loc[::9, "a"] = np.nan
    return frame


@pytest.fixture(scope="module")
def small():
    """A model on its way through a stream, with text, gaps and little else."""
    X = rows()
    y = np.sin(X["a"].fillna(1.0)) + (X["b"] == "x")
    how = {"n_init": 1, "max_iter": 2, "n_basis": 3, "max_rank": 2, "n_jobs": 1, "random_state": 0}
    how["structure"] = "tensor"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # so small a fit finds little
        model = BTNRegressor(**how).partial_fit(X, y)
    model.history_ = model.history_[-1:]
    return model


@pytest.fixture(scope="module")
def content(small, tmp_path_factory):
    """Its file."""
    path = tmp_path_factory.mktemp("models") / "small.btn"
    small.save(path)
    return path.read_bytes()


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a model from bytes."""

    def loaded(content):
        path = tmp_path / "read.btn"
        path.write_bytes(content)
        return btnkm.load(path)

    return loaded


@pytest.fixture
def refused(read):
    """Return a function that makes sure that bytes are refused: in a sentence, with little room."""

    def check(content, match="model saved by btnkm"):
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match=match) as caught:
                read(content)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert str(caught.value).startswith("path must name a model saved by btnkm, got '")
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)
        assert caught.type is ValueError
        assert peak < 2**20 + 8 * len(content)

    return check


def packed(members, compression=zipfile.ZIP_STORED):
    """Return a file with any members, and a checksum that is right."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as new, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a name that comes twice
        for name, data in members:
            new.writestr(name, data)
        new.comment = b"0" * 64
    body = out.getvalue()[:-64]
    return body + hashlib.sha256(body).hexdigest().encode()


def members(content):
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        return {name: old.read(name) for name in old.namelist()}


def forged(content, change):
    """Return a file with another ``model.json``, and a checksum that is right."""
    stored = members(content)
    manifest = change(json.loads(stored["model.json"]))
    return packed({**stored, "model.json": json.dumps(manifest).encode()}.items())


def test_a_file_is_a_zip_of_json_and_npy_that_anyone_can_read(content):
    with zipfile.ZipFile(io.BytesIO(content)) as actual:
        assert actual.testzip() is None
    parts = members(content)
    manifest = json.loads(parts.pop("model.json"))
    assert manifest["format"] == "btnkm model"
    assert manifest["version"] == migrate.VERSION
    assert manifest["btnkm"] == btnkm.__version__
    for name, data in parts.items():
        flat = np.load(io.BytesIO(data), allow_pickle=False)
        shapes = [e["shape"] for e in manifest["arrays"] if f"{e['dtype']}.npy" == name]
        assert 0 < len(flat) <= sum(int(np.prod(shape)) for shape in shapes)


def test_arrays_keep_their_bits_and_their_order_in_memory(tmp_path):
    rng = np.random.default_rng(0)
    half = rng.normal(size=(6, 6))
    whole = half + half.T
    nearly, signed = whole.copy(), np.zeros((2, 2))
    nearly[0, 1] = np.nextafter(nearly[0, 1], 9.0)
    signed[0, 1] = -0.0
    square = [
        whole,
        whole.reshape(2, 3, 2, 3),
        np.stack([whole, 2.0 * whole]),
        nearly,
        signed,
    ]
    assert [archive.Entry.of(array).symmetric for array in square] == [True] * 3 + [False] * 2
    cube = rng.normal(size=(2, 3, 4))
    others = [half.T, cube.transpose(1, 0, 2), np.empty((0, 3)), np.array(2.5), np.array([True])]
    others += [np.arange(3, dtype=np.int32), np.array([np.nan, np.inf, -0.0]), half[::2, 1:3]]
    archive.write(tmp_path / "a", {}, [*square, *others])
    with archive.Archive(tmp_path / "a") as file:
        actual = file.arrays(file.manifest["arrays"])
    for array, other in zip([*square, *others], actual, strict=True):
        assert other.dtype == array.dtype
        assert other.shape == array.shape
        assert other.tobytes() == array.tobytes()
    assert actual[5].flags.f_contiguous
    assert actual[6].transpose(1, 0, 2).flags.c_contiguous


def test_an_older_version_is_brought_up_to_date_step_by_step(small, content, read, monkeypatch):
    def before(manifest):
        manifest["attributes"]["reason"] = manifest["attributes"].pop("stop_reason_")
        return manifest

    def renamed(manifest):
        attributes = dict(manifest["attributes"])
        attributes["stop_reason_"] = attributes.pop("reason")
        return manifest | {"attributes": attributes}

    old, version = forged(content, before), migrate.VERSION
    monkeypatch.setattr(migrate, "VERSION", version + 2)
    further = {version: renamed, version + 1: lambda manifest: manifest}
    monkeypatch.setattr(migrate, "MIGRATIONS", further)
    same = read(old)
    assert same.stop_reason_ == small.stop_reason_
    assert np.array_equal(same.predict(rows()), small.predict(rows()))
    monkeypatch.setattr(migrate, "MIGRATIONS", {version + 1: renamed})
    with pytest.raises(ValueError, match=f"one of format {version}, .* fit the model again"):
        read(old)


def test_every_version_that_can_be_read_has_a_migration():
    assert set(migrate.MIGRATIONS) == set(range(migrate.OLDEST, migrate.VERSION))


@pytest.mark.parametrize("version", [0, 1, migrate.OLDEST - 1])
def test_versions_that_were_never_released_are_refused(content, refused, version):
    old = forged(content, lambda m: m | {"version": version})
    refused(old, f"one of format {version}, while btnkm .* reads formats from {migrate.OLDEST} on")


def test_a_newer_version_is_refused_with_the_version_that_is_needed(content, refused):
    later = {"version": migrate.VERSION + 1, "btnkm": "0.9.1", "arrays": "another way"}
    refused(
        forged(content, lambda m: m | later),
        f"one of format {migrate.VERSION + 1}, while btnkm .* reads formats up to "
        f"{migrate.VERSION}; it was .* btnkm 0.9.1",
    )


def test_a_file_that_is_only_packed_anew_is_read(small, content, read):
    same = read(forged(content, lambda manifest: manifest))
    assert np.array_equal(same.predict(rows()), small.predict(rows()))


def test_every_flipped_bit_is_noticed(content, refused):
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(io.BytesIO(content)) as actual:
        headers = [info.header_offset + k for info in actual.infolist() for k in range(46)]
    end = range(len(content) - 300, len(content))  # the zip's list of what it holds
    for place in {*headers, *end, *rng.integers(len(content), size=100).tolist()}:
        wrong = bytearray(content)
        wrong[place] ^= 1 << int(rng.integers(8))
        refused(bytes(wrong))


def test_every_cut_is_noticed(content, refused):
    for size in {0, 1, 3, 4, 30, 63, 64, 65, 100, *range(1, len(content), len(content) // 40)}:
        refused(content[:size])
    for more in (b"\0", b"PK\5\6", content[-64:], content):
        refused(content + more, "its checksum differs")


def test_other_files_are_refused(refused, tmp_path):
    refused(b"", "a file of another kind; take another copy")
    refused(pickle.dumps({"a": 1}), "a file of another kind")
    made = io.BytesIO()
    np.savez(made, a=np.ones(3))
    refused(made.getvalue(), "its checksum differs")
    refused(packed([("model.json", "{}")]), "a zip of something else")
    refused(packed([("model.json", '{"format": NaN}')]), "model.json cannot be read")
    refused(packed([("model.json", '{"format": 1, "format": 2}')]), "model.json cannot be read")
    refused(packed([("model.json", "[1]")]), "does not describe a model")
    with pytest.raises(FileNotFoundError):
        btnkm.load(tmp_path / "none.btn")
    with pytest.raises(IsADirectoryError, match="must name a file, got the folder"):
        btnkm.load(tmp_path)
    with pytest.raises(TypeError, match="path must name a file"):
        btnkm.load(3)


def test_members_that_do_not_belong_are_refused(content, refused):
    archived = members(content)
    for name in ("../../evil.txt", "/etc/evil", "float64.npy", "arrays/", "MODEL.JSON"):
        refused(packed([*archived.items(), (name, b"x")]), "other members than a model has")
    without = [item for item in archived.items() if item[0] != "model.json"]
    refused(packed(without), "other members than a model has")
    refused(
        packed([*archived.items(), ("float32.npy", b"")]), "other types of arrays than it lists"
    )
    swapped = {
        **archived,
        "float64.npy": archived["int64.npy"],
        "int64.npy": archived["float64.npy"],
    }
    refused(packed(swapped.items()), "other arrays than it lists")
    refused(packed(archived.items(), zipfile.ZIP_DEFLATED), "compressed or encrypted")
    refused(packed(archived.items(), zipfile.ZIP_BZIP2), "compressed or encrypted")


def test_bombs_are_refused_before_they_take_memory(content, refused):
    for shape in ([10**6, 10**7], [2**63, 2**63], [0, 2**62]):
        change = {"shape": shape, "axes": [0, 1], "symmetric": False}

        def huge(manifest, change=change):
            manifest["arrays"][0] |= change
            return manifest

        refused(forged(content, huge))
    long = "x" * 2000
    for text in (["<U9999999", [1], [""]], ["<U2000", [10**4], [long] + [""] * (10**4 - 1)]):

        def wide(manifest, text=text):
            manifest["attributes"]["stop_reason_"] = {"text": text}
            return manifest

        refused(forged(content, wide), "a value of a kind that no file has")
    archived = members(content)
    deep = {**archived, "model.json": b"[" * 10**6}
    refused(packed(deep.items()), "model.json cannot be read")
    zeros = {**archived, "float64.npy": bytes(10**7)}
    refused(packed(zeros.items(), zipfile.ZIP_DEFLATED), "compressed or encrypted")


def test_text_takes_no_more_room_in_memory_than_its_file_can_pay_for():
    long = ["x" * 2000] + [""] * 999
    for array in (np.array(["a", "bcd"], "U20"), np.array(["a", "bcd"], "U900"), np.array(long)):
        encoder = models.Encoder()
        actual = models.Decoder([], [], ()).value(encoder.node(array, "it"))
        assert actual.tolist() == array.tolist()
        assert actual.nbytes <= min(array.nbytes, 64 * sum(1 + len(item) for item in actual))


def test_arrays_of_objects_are_refused(content, refused):
    archived, made = members(content), io.BytesIO()
    np.save(made, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    refused(
        packed({**archived, "float64.npy": made.getvalue()}.items()), "other arrays than it lists"
    )


def test_arrays_that_were_changed_are_refused(content, refused):
    archived = members(content)
    for place in (-1, -9, 130):
        wrong = bytearray(archived["float64.npy"])
        wrong[place] ^= 1
        refused(
            packed({**archived, "float64.npy": bytes(wrong)}.items()), "differs from its checksum"
        )


def test_posteriors_without_a_number_are_refused(small, refused, tmp_path):
    wrong = copy.deepcopy(small)
    wrong.posterior_[0].factors[0].mean[0, 0] = np.nan
    wrong.save(tmp_path / "wrong.btn")
    refused(
        (tmp_path / "wrong.btn").read_bytes(),
        r"posteriors that do not fit together \(Factor.mean must be numbers\(M, C\)\)",
    )


@pytest.mark.parametrize(
    "wrong",
    [
        *({"history_": [{"restart": 0}]}, {"history_": []}, {"rank_": "3"}, {"rank_": (2, 2)}),
        *({"noise_std_": "little"}, {"lower_bounds_": np.empty(0)}, {"structures_": [{}]}),
        *({"best_restart_": 1}, {"target_name_": ["y"]}, {"n_samples_seen_": "many"}),
        *({"ranks_": np.array([0.5])}, {"n_basis_": np.array(["a", "b"])}),
    ],
)
def test_what_is_told_of_a_fit_must_be_there(small, refused, tmp_path, wrong):
    other = copy.deepcopy(small)
    vars(other).update(wrong)
    other.save(tmp_path / "wrong.btn")
    refused((tmp_path / "wrong.btn").read_bytes())


@pytest.mark.parametrize("key", ["restart", "sweep", "rows", "phase", "elbo", "rank", "seconds"])
def test_sweeps_are_told_in_full(small, refused, tmp_path, key):
    for change in ({}, {key: [None]}):
        other = copy.deepcopy(small)
        other.history_[0] = {k: v for k, v in other.history_[0].items() if k != key} | change
        other.save(tmp_path / "wrong.btn")
        refused((tmp_path / "wrong.btn").read_bytes())


def test_parameters_and_names_are_those_that_can_be(small, content, read, refused, tmp_path):
    for name, value in (("max_iter", 0), ("network", ["cp"]), ("tol", "x"), ("solver", 2)):

        def other(manifest, name=name, value=value):
            manifest["parameters"][name] = value
            return manifest

        refused(forged(content, other))
    for prune in (False, 2):

        def with_solver(manifest, prune=prune):
            options = asdict(Solver()) | {"prune": prune}
            manifest["parameters"]["solver"] = {"object": len(manifest["objects"])}
            manifest["objects"].append({"kind": "Solver", "fields": options})
            return manifest

        if prune is False:
            assert read(forged(content, with_solver)).solver == Solver(prune=False)
        else:
            refused(forged(content, with_solver))
    with pytest.raises(ValueError, match="max_iter must be an integer >= 1"):
        copy.deepcopy(small).set_params(max_iter=0).save(tmp_path / "wrong.btn")
    changed = copy.deepcopy(small)
    del changed.feature_names_in_
    changed.columns_[0] = replace(changed.columns_[0], name=["a"])
    changed.save(tmp_path / "wrong.btn")
    refused(
        (tmp_path / "wrong.btn").read_bytes(),
        r"columns that do not fit together \(Column.name must be name\)",
    )


def test_indices_that_lead_out_of_a_product_table_are_refused(small, refused, tmp_path):
    wrong = copy.deepcopy(small)
    wrong.columns_[0].basis.table_.indices[0] = 10**6
    wrong.save(tmp_path / "wrong.btn")
    refused((tmp_path / "wrong.btn").read_bytes(), "an impossible sparse matrix")


GONE = object()
OTHERS = [None, True, -1, 0, 1, 2**40, 0.5, -1e300, "x", [], [1, 2], {}, GONE, {"float": "nan"}]
OTHERS += [{"array": 0}, {"array": 10**9}, {"object": 0}, {"tuple": []}, {"dict": ["a", 1]}]


def places(node, path=()):
    """Yield the path of every part of a manifest."""
    if path:
        yield path
    inside = {dict: dict.items, list: enumerate}.get(type(node), lambda _: ())
    for key, inner in inside(node):
        yield from places(inner, (*path, key))


def put(manifest, path, value):
    """Return the manifest with something else in one place, or nothing."""
    holder = manifest
    for key in path[:-1]:
        holder = holder[key]
    if value is GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return manifest


@pytest.mark.parametrize("part", ["arrays", "objects", "attributes", ""])
def test_whatever_stands_in_a_file_is_refused_or_harmless(part, content, read):
    manifest = json.loads(members(content)["model.json"])
    every = [path for path in places(manifest) if not part or (path[0] == part and path[1:])]
    rng = np.random.default_rng(0)
    wrong: list[str] = []
    for _ in range(100):
        path, other = every[rng.integers(len(every))], OTHERS[rng.integers(len(OTHERS))]
        try:
            model = read(forged(content, lambda m, p=path, v=other: put(m, p, v)))
        except ValueError as error:
            wrong.append(str(error))
            continue
        mean, std = model.predict(rows(), return_std=True)
        assert np.all(np.isfinite(mean)), (path, other)
        assert np.all(std > 0), (path, other)
        assert str(explain.summary(model)), (path, other)
        assert explain.history(model).to_dict(), (path, other)
    assert len(wrong) > 60
    assert all(text.startswith("path must name a model saved by btnkm") for text in wrong)


def arrays_of(node, path=()):
    """Yield the path and the number of every array that a manifest refers to."""
    if isinstance(node, dict) and set(node) == {"array"}:
        yield path, node["array"]
    for key, inner in {dict: dict.items, list: enumerate}.get(type(node), lambda _: ())(node):
        yield from arrays_of(inner, (*path, key))


def test_no_array_may_have_a_number_that_is_not_finite(content, tmp_path, read):
    (tmp_path / "whole.btn").write_bytes(content)
    with archive.Archive(tmp_path / "whole.btn") as file:
        manifest = file.manifest
        arrays = file.arrays(manifest.pop("arrays"))
    kinds = [item["kind"] for item in manifest["objects"]]
    # raw values may be missing, and the ELBO is not known in every sweep
    free = {k for path, k in arrays_of(manifest["attributes"]) if "lower_bounds_" in path}
    free |= {
        k
        for path, k in arrays_of(manifest["objects"])
        if kinds[path[0]] == "Batch" and "columns" in path
    }
    tried = 0
    for k, array in enumerate(arrays):
        if array.dtype != np.float64 or not array.size or k in free:
            continue
        for value in (np.nan, np.inf):
            wrong = array.copy()
            wrong[(-1,) * array.ndim] = value
            archive.write(tmp_path / "wrong.btn", manifest, [*arrays[:k], wrong, *arrays[k + 1 :]])
            with pytest.raises(ValueError, match="do not fit together|impossible") as caught:
                read((tmp_path / "wrong.btn").read_bytes())
            assert isinstance(caught.value.__cause__, archive.Unreadable)
            tried += 1
    assert tried > 60


def test_the_cause_of_a_refusal_is_kept_and_shown(content, read):
    def other(manifest):
        del manifest["objects"][-1]["kind"]
        return manifest

    with pytest.raises(ValueError, match="an object of a kind that no file has") as caught:
        read(forged(content, other))
    assert isinstance(caught.value.__cause__, archive.Unreadable)

    def without(manifest):
        del manifest["estimator"]
        return manifest

    with pytest.raises(
        ValueError, match=r"do not fit together \(KeyError: 'estimator'\)"
    ) as caught:
        read(forged(content, without))
    assert isinstance(caught.value.__cause__, KeyError)

    def wrong(manifest):
        manifest["parameters"]["max_iter"] = 0
        return manifest

    with pytest.raises(ValueError, match=r"\(ValueError: max_iter must be an integer >= 1"):
        read(forged(content, wrong))


def test_objects_that_refer_to_others_many_times_are_refused(content, refused):
    def doubling(manifest):
        objects = manifest["objects"]
        objects.append({"kind": "Gamma", "fields": {"shape": 1.0, "rate": 1.0}})
        for _ in range(80):
            last = {"object": len(objects) - 1}
            objects.append({"kind": "Gamma", "fields": {"shape": last, "rate": last}})
        manifest["parameters"]["basis_prior"] = {"object": len(objects) - 1}
        return manifest

    refused(forged(content, doubling), r"Gamma.shape must be \(number")


def test_a_factor_of_many_columns_is_refused_before_their_pairs_are_made(small, refused, tmp_path):
    wrong = copy.deepcopy(small)
    state = wrong.posterior_[0]
    factor = replace(state.factors[0], mean=np.zeros((1, 40_000)), cov=np.zeros((1, 1, 1, 1)))
    wrong.posterior_ = (replace(state, factors=(factor, *state.factors[1:])),)
    wrong.save(tmp_path / "wrong.btn")
    refused((tmp_path / "wrong.btn").read_bytes(), "weights that have no covariance")


def test_every_class_in_a_file_has_a_form_of_its_fields():
    for kind, form in contents.FORMS.items():
        if is_dataclass(kind):
            assert set(form.names) == {field.name for field in fields(kind)}, kind
        elif issubclass(kind, tuple):
            assert set(form.names) == set(kind.__match_args__), kind
    assert {*BASES.values(), *contents.BUILT_IN} <= set(contents.FORMS)


def test_a_file_takes_the_place_of_another_as_a_whole(small, tmp_path, monkeypatch):
    path = tmp_path / "m.btn"
    small.save(path)
    before = path.read_bytes()
    path.chmod(0o604)
    small.save(str(path))
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o604

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    for where, name in (
        (atomic_write.os, "fsync"),
        (zipfile.ZipFile, "open"),
        (atomic_write.Path, "replace"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, fails)
            with pytest.raises(OSError, match="No space left"):
                small.save(path)
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["m.btn"]


def test_files_are_brought_to_disk_by_a_handle_that_may_write(small, tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    brought = []

    def as_on_windows(handle):
        if stat.S_ISREG(os.fstat(handle).st_mode):
            if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                raise OSError(9, "Bad file descriptor")
            brought.append(handle)

    monkeypatch.setattr(atomic_write.os, "fsync", as_on_windows)
    small.save(tmp_path / "m.btn")
    assert brought


def test_a_new_file_has_the_rights_of_any_new_file(small, tmp_path, monkeypatch):
    (tmp_path / "plain").touch()
    small.save(tmp_path / "m.btn")
    rights = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "m.btn")}
    assert len(rights) == 1


def test_paths_are_what_they_are_elsewhere(small, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    small.save("~/home.btn")
    assert np.array_equal(btnkm.load("~/home.btn").predict(rows()), small.predict(rows()))
    (tmp_path / "link.btn").symlink_to(tmp_path / "home.btn")
    small.save(tmp_path / "link.btn")
    assert (tmp_path / "link.btn").is_symlink()
    with pytest.raises(FileNotFoundError, match="path must be in a folder that can be written to"):
        small.save(tmp_path / "no" / "m.btn")
    with pytest.raises(IsADirectoryError, match="must name a file"):
        small.save(tmp_path)


def test_a_process_killed_while_it_writes_leaves_the_old_file(small, tmp_path):
    path = tmp_path / "m.btn"
    small.save(path)
    before = path.read_bytes()
    code = (
        "import sys, time, btnkm\n"
        "from btnkm.io import archive\n"
        "model = btnkm.load(sys.argv[1])\n"
        "def wait(*_):\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
        "archive._digest = wait\n"  # all is written but the checksum
        "model.save(sys.argv[1])\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "writing\n"
        finally:
            process.send_signal(signal.SIGKILL)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2  # what was half written has another name
    small.save(path)
    assert path.read_bytes() == before
