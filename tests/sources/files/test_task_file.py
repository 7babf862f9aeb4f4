"""Which class a file has: found without a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepmill.errors import CompileError, ConfigError
from stepmill.sources.files.task_file import TaskFile, env_classes, is_file_task

ENV = "static EnvSpec spec(const Config&);"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (f"class Coin {{ {ENV} }};", ["Coin"]),
        (f"namespace a::b {{ struct Coin final : Base<int> {{ {ENV} }}; }}", ["a::b::Coin"]),
        (
            f"namespace a {{ namespace {{ class X {{}}; }} class Coin {{ void f() {{ if (x) {{}} }} {ENV} }}; }}",
            ["a::Coin"],
        ),
        (f"namespace a {{ namespace {{ class Coin {{ {ENV} }}; }} }}", ["a::Coin"]),
        (f"class A {{ {ENV} }}; class B {{ {ENV} }};", ["A", "B"]),
        ("class [[nodiscard]] Coin { [[nodiscard]] static stepmill::EnvSpec spec(const Config&); };", ["Coin"]),
        (f"class Outer {{ class Inner {{ {ENV} }}; }};", ["Outer::Inner"]),
        (
            f"namespace n {{ class Coin {{ {ENV} struct Row {{ }}; enum class Kind {{ }}; }}; }}",
            ["n::Coin"],
        ),
        (f"class Outer {{ public: class Inner : Base {{ {ENV} }}; }};", ["Outer::Inner"]),
        (f"class A {{ {ENV} }}; struct B final : Other, public A {{ }}; class C : B {{ }};", ["A", "B", "C"]),
        (f"namespace n {{ class A {{ {ENV} }}; }} class B : public n::A {{ {ENV} }};", ["n::A", "B"]),
        (f"class A {{ {ENV} }}; class B : Holder<A> {{ A a; }}; class C {{ C() : A() {{}} }};", ["A"]),
        # Names between < and > are no bases, and a class of a function cannot be named.
        (f"class A {{ {ENV} }}; struct B : Holder<A, 4> {{ }}; struct C : std::map<int, A, less<A>> {{ }};", ["A"]),
        (f"class A {{ {ENV} }}; class B : Holder<(3 > 2), A, int>, public A {{ }};", ["A", "B"]),
        (f"class A {{ {ENV} }}; static A make() {{ struct B : A {{ }}; return B(); }}", ["A"]),
        (f"class A {{ {ENV} }}; class C {{ C(struct Config c) : A(c) {{ }} }};", ["A"]),
        # A base is the innermost class of its name.
        (
            f"class A {{ {ENV} }}; namespace n {{ struct A {{ }}; struct B : A {{ }}; struct C : ::A {{ }}; }}",
            ["A", "n::C"],
        ),
        (f"namespace n {{ class A {{ {ENV} }}; class B : A {{ }}; }} class C : m::A {{ }};", ["n::A", "n::B"]),
        (f"namespace n {{ class A {{ {ENV} }}; }} using namespace n; class B : A {{ }};", ["n::A", "B"]),
        (
            f'namespace {{ class A {{ {ENV} }}; class B : A {{ }}; }} extern "C++" {{ class C : B {{ }}; }}',
            ["A", "B", "C"],
        ),
        (f"class A {{ {ENV} }}; using X = A; using Y = Holder<A>; class B : X {{ }}; class C : Y {{ }};", ["A", "B"]),
        (f"class A {{ {ENV} }}; class B [[deprecated]] : [[unused]] A {{ }};", ["A", "B"]),
        ("namespace n { static EnvSpec spec(const Config&); }", []),
        (f"template <class T> class Coin {{ {ENV} }};", []),
        (f"// class Coin {{ {ENV} }};", []),
        (f"/* class Coin {{\n {ENV} }}; */", []),
        (f'const char* text = "class Coin {{ {ENV} }};";', []),
        (f'const char* text = R"x(class Coin {{ {ENV} }};)x"; class Real {{ {ENV} }};', ["Real"]),
        (f"#define COIN class Coin {{ \\\n {ENV} }};\nclass Real {{ {ENV} }};", ["Real"]),
        ("class Coin { EnvSpec spec(const Config&); };", []),
        (f"enum class Kind {{ a, b }}; class Coin {{ char quote = '\"'; {ENV} }};", ["Coin"]),
        ("}}}} class {{{{", []),
        ("", []),
    ],
)
def test_classes_are_found_in_the_text(source: str, found: list[str]) -> None:
    assert env_classes(source) == found


@pytest.mark.parametrize("task", ["coin.h", "a/b.hpp", "x.cpp:Coin", "lib.so", "/tmp/coin.h:a::Coin"])
def test_a_task_that_ends_like_a_file_is_one(task: str) -> None:
    assert is_file_task(task)


@pytest.mark.parametrize(
    "task", ["CartPole-v1", "gymnasium:CartPole-v1", "module:Coin", "coin.hs", ".h", "coin.h:", "h"]
)
def test_other_tasks_are_not(task: str) -> None:
    assert not is_file_task(task)


def test_the_class_named_as_the_file_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "my_coin.h"
    source = f"namespace n {{ class Other {{ {ENV} }}; class MyCoin {{ {ENV} }}; }}"
    file.write_text(source)
    assert TaskFile.of(file).class_of(source) == "n::MyCoin"
    assert TaskFile.of(f"{file}:Other").class_of(source) == "n::Other"
    assert TaskFile.of(f"{file}:n::Other").class_of(source) == "n::Other"
    assert TaskFile.of(f"{file}:FromMacro").class_of(source) == "FromMacro"  # the compiler will know


@pytest.mark.parametrize("name", ["Ih", "IH", "ih", "I_h"])
def test_the_class_named_as_the_file_may_inherit_its_spec(tmp_path: Path, name: str) -> None:
    file = tmp_path / "ih.h"
    file.touch()
    source = f"class BaseCoin {{ {ENV} }}; namespace n {{ class {name} : public BaseCoin {{ }}; }}"
    assert TaskFile.of(file).class_of(source) == f"n::{name}"
    assert TaskFile.of(f"{file}:{name}").class_of(source) == f"n::{name}"
    assert TaskFile.of(f"{file}:BaseCoin").class_of(source) == "BaseCoin"


@pytest.mark.parametrize("other", ["Mycoin", "My_Coin", "MYCOIN", "mycoin"])
@pytest.mark.parametrize("stem", ["my_coin", "MyCoin"])
def test_the_class_named_exactly_as_the_file_wins(tmp_path: Path, stem: str, other: str) -> None:
    file = tmp_path / f"{stem}.h"
    file.touch()
    for source in (
        f"class MyCoin {{ {ENV} }}; class {other} : MyCoin {{ }};",
        f"class {other} {{ {ENV} }}; class MyCoin : {other} {{ }};",
    ):
        assert TaskFile.of(file).class_of(source) == "MyCoin"


def test_the_class_that_is_named_exactly_wins_over_that_of_a_namespace(tmp_path: Path) -> None:
    file = tmp_path / "games.h"
    file.touch()
    source = f"namespace n {{ class A {{ {ENV} }}; }} class A {{ {ENV} }};"
    assert TaskFile.of(f"{file}:A").class_of(source) == "A"
    assert TaskFile.of(f"{file}:n::A").class_of(source) == "n::A"


@pytest.mark.parametrize("stem", ["my_coin", "MyCoin", "my-coin", "mycoin", "MY_COIN"])
def test_names_are_alike_whatever_their_case(tmp_path: Path, stem: str) -> None:
    file = tmp_path / f"{stem}.cpp"
    file.touch()
    assert TaskFile.of(file).class_of(f"class A {{ {ENV} }}; class MyCoin {{ {ENV} }};") == "MyCoin"


def test_the_only_class_is_taken_whatever_its_name(tmp_path: Path) -> None:
    file = tmp_path / "games.h"
    file.touch()
    assert TaskFile.of(file).class_of(f"class Coin {{ {ENV} }};") == "Coin"


def test_several_classes_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "games.h"
    file.touch()
    with pytest.raises(
        CompileError, match=r"several env classes, A, B, none named Games: say which, as in 'games.h:A'"
    ):
        TaskFile.of(file).class_of(f"class A {{ {ENV} }}; class B {{ {ENV} }};")
    with pytest.raises(CompileError, match="several env classes, A, B, none named Games"):
        TaskFile.of(file).class_of(f"class A {{ {ENV} }}; class B : public A {{ }};")
    file = tmp_path / "coin.h"
    file.touch()
    with pytest.raises(CompileError, match=r"a::Coin, b::Coin, several named Coin: say which, as in 'coin\.h:a::Coin'"):
        TaskFile.of(file).class_of(
            f"namespace a {{ class Coin {{ {ENV} }}; }} namespace b {{ class Coin {{ {ENV} }}; }}"
        )


def test_a_file_without_a_class_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "games.h"
    file.touch()
    with pytest.raises(CompileError, match="expected a class with `static EnvSpec spec"):
        TaskFile.of(file).class_of("int x;")


def test_a_file_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"'coin\.h': there is no file .*coin\.h"):
        TaskFile.of("coin.h")
