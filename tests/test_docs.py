"""The documentation: examples on pages run, and links of a built site are valid."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

from tools.check_links import check, main, problem_elsewhere

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = [
    path
    for path in (README, ROOT / "docs" / "install.md", ROOT / "docs" / "index.md")
    if path.exists()
] + sorted((ROOT / "docs" / "guide").glob("*.md"))
BLOCK = re.compile(r"^```(python|pycon)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PUBLIC = ("bases", "likelihoods", "explain", "baselines", "datasets", "scorers", "testing")
#: Names of these modules that are used by the library only.
LEFT_OUT = {"Source", "fingerprint", "best"}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks_of(path):
    """Return language, text and preceding line number of each block of code of a page."""
    text = path.read_text(encoding="utf-8")
    return [(m[1], m[2], text.count("\n", 0, m.start(2))) for m in BLOCK.finditer(text)]


def is_program(code):
    """Return whether a block is a complete program, rather than a fragment."""
    first = next(line for line in code.splitlines() if line and not line.startswith("#"))
    return first.startswith(("import ", "from ")) and "Client()" not in code


def bare(code):
    """Return code without its comments, to compare it with that of the README."""
    return re.sub(r" *#.*", "", code)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_examples_of_pages_run(path, tmp_path, monkeypatch):
    """A page is one session: names defined in one example are available in the next."""
    monkeypatch.chdir(tmp_path)
    session = {}
    reports = []
    shown_before = [] if path == README else [bare(code) for _, code, _ in blocks_of(README)]
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    for language, code, line in blocks_of(path):
        if language == "python":
            compiled = compile(code, str(path), "exec")
            if is_program(code) and bare(code) not in shown_before:
                exec(compiled, {"__name__": "example"})
            continue
        test = doctest.DocTestParser().get_doctest(code, session, path.name, str(path), line)
        runner.run(test, clear_globs=False, out=reports.append)
        session.update(test.globs)
    assert not reports, "".join(reports)


def test_a_wrong_example_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Words.\n\n```pycon\n>>> 1 + 1\n3\n\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="Expected"):
        test_examples_of_pages_run(page, tmp_path, pytest.MonkeyPatch())


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="an sdist leaves out docs/")
@pytest.mark.parametrize("module", ["btnkm", *(f"btnkm.{name}" for name in PUBLIC)])
def test_the_reference_has_every_public_name(module):
    listed = (ROOT / "docs" / "api" / "index.rst").read_text(encoding="utf-8").splitlines()
    names = getattr(import_module(module), "__all__", None)
    if names is None:  # a module of functions: the public names that it defines
        members = vars(import_module(module)).items()
        names = [name for name, value in members if getattr(value, "__module__", None) == module]
    left_out = {"__version__", "bases", "scorers", "BASES", "LIKELIHOODS", *LEFT_OUT}
    names = [name for name in names if name not in left_out and not name.startswith("_")]
    assert names
    assert [name for name in names if f"   {name}" not in listed] == []


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="an sdist leaves out docs/")
def test_links_between_pages_also_work_in_the_repository():
    """Links on pages of the site also work for readers of the repository."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    pages += [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md")]
    wrong = []
    for page in pages:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text):
            # by the build, or on another site
            generated = link.startswith(("gallery/", "../gallery/", "http"))
            if not generated and not (page.parent / link).exists():
                wrong.append(f"{page.relative_to(ROOT)}: {link}")
    assert not wrong


def write(folder, **pages):
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>", encoding="utf-8")


def test_links_of_a_valid_site(tmp_path, capsys):
    (tmp_path / "picture.png").write_bytes(b"")
    write(
        tmp_path,
        index='<a href="other.html#there">1</a> <a href="#top">2</a> <h1 id="top">3</h1>'
        '<img src="picture.png" srcset="picture.png, picture.png 2x"> <a href="#">4</a>'
        '<a href="https://example.org/a?b#c">5</a> <a href="mailto:a@b.org">6</a>',
        other='<p id="there"></p> <a href="other.html?q=1#th%65re">7</a> <a href=".">8</a>',
    )
    assert check(tmp_path) == ([], 10)
    assert main([str(tmp_path)]) == 0
    assert "10 links, 0 of them wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("nowhere.html", "leads to no file"),
        ("other.html#here", "leads to no anchor of other.html"),
        ("#here", "leads to no anchor of index.html"),
        ("../outside.html", "leads out of the site"),
        ("/other.html", "must be relative"),
        ("http://localhost/x", "must name a host"),
        ("file:///tmp/x", "must be https, http or mailto"),
        ("//127.0.0.1/x", "must name a host"),
    ],
)
def test_links_that_are_wrong(tmp_path, capsys, link, message):
    write(tmp_path, index=f'<a href="{link}">x</a>', other="<p id='there'></p>")
    (problem,), _ = check(tmp_path)
    assert problem.startswith("index.html:1: ")
    assert message in problem
    assert main([str(tmp_path)]) == 1
    assert message in capsys.readouterr().err


def test_forms_of_links_elsewhere():
    assert problem_elsewhere("https://numpy.org/doc/") is None
    assert "blanks" in problem_elsewhere("https://numpy.org/a b")
    assert "address" in problem_elsewhere("mailto:nobody")


def test_a_folder_without_a_site_is_an_error(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "must hold a built site" in capsys.readouterr().err
