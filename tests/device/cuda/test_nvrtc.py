"""Every class that a GPU can step, compiled for GPUs: by NVIDIA's compiler, which needs no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

import stepmill
from stepmill.device.cuda import nvrtc
from stepmill.errors import CompileError, MissingPackageError
from stepmill.registry.records import records
from support.host_kernels import MODES, ROOT, Form, Place, definitions, headers
from support.own_env import own_env

ARCHITECTURES = (80, 90, 100)  # A100, H100, B200
TASKS = {
    "Acrobot": "Acrobot-v1",
    "CartPole": "CartPole-v1",
    "MountainCar": "MountainCar-v0",
    "MountainCarContinuous": "MountainCarContinuous-v0",
    "Pendulum": "Pendulum-v1",
    "Blackjack": "Blackjack-v1",
    "Catch": "Catch-v0",
    "CliffWalking": "CliffWalking-v1",
    "FrozenLake": "FrozenLake-v1",
    "NChain": "NChain-v0",
    "Taxi": "Taxi-v3",
    "Moving": "Moving-v0",
    "Sliding": "Sliding-v0",
    "Template": "Template-v0",
}
HOST_ONLY = {
    "Probe": "it reads files, and says what it was told to in strings",
    "TemplatePlayers": "the rows of a kernel are those of one player",
}


@pytest.fixture(scope="session", autouse=True)
def compiler() -> None:
    try:
        nvrtc.version()
    except MissingPackageError as error:
        pytest.skip(str(error))


def kernel_of(task: str, autoreset: str) -> str:
    place = Place.of(task)
    with stepmill.make(task, num_envs=1, autoreset=autoreset) as pool:
        return Form.of(pool, place.env_class).source(place)


def test_every_class_runs_on_a_gpu_or_says_why_not() -> None:
    classes = {record.native for record in records() if record.simulator is None}
    assert classes & headers().keys() == {*TASKS, *HOST_ONLY}


@pytest.mark.all_cases
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", TASKS)
def test_a_class_compiles_for_every_gpu_that_we_know(name: str, architecture: int) -> None:
    mode = MODES[ARCHITECTURES.index(architecture)]  # each in one of them
    image = nvrtc.compile_kernel(kernel_of(TASKS[name], mode), architecture, [], definitions())
    assert image.startswith(b"\x7fELF")
    assert b"stepmill_step" in image


@pytest.mark.parametrize("file", ["coin.h", "cart_pole.h"])
@pytest.mark.usefixtures("one_cache")
def test_an_env_of_one_file_compiles_for_a_gpu(file: str) -> None:
    library = stepmill.compile(ROOT / "examples/own_envs" / file)
    place = Place.of(library)
    with stepmill.make(library, num_envs=1) as pool:
        source = Form.of(pool, place.env_class).source(place)
    assert nvrtc.compile_kernel(source, 90, [ROOT / "examples/own_envs"], definitions()).startswith(b"\x7fELF")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_the_standard_library_has_compiles_for_every_gpu_that_we_know(architecture: int) -> None:
    """What it does is compared with the host's in ``test_std.py``."""
    source = (ROOT / "cpp/tests/gpu/std_behaviour.cpp").read_text()
    assert nvrtc.compile_kernel(source, architecture, [], ["-DAS_KERNEL"]).startswith(b"\x7fELF")


@pytest.mark.parametrize("header", sorted(one.name for one in (ROOT / "cpp/gpu/std").iterdir()))
def test_each_header_stands_alone(header: str) -> None:
    source = f'#include "gpu/prelude.h"\n#include <{header}>\nextern "C" __global__ void kernel() {{}}'
    assert nvrtc.compile_kernel(source, 90, []).startswith(b"\x7fELF")


@pytest.mark.usefixtures("one_cache")
def test_large_envs_and_rows_are_not_written_out(tmp_path: Path) -> None:
    """Every word of them would be some instructions, and the compiler would take minutes."""

    def image(size: int) -> bytes:
        spec = (
            f"spec.action = {{discrete(5)}}; spec.observation = {{box<std::uint8_t>({{{16 * size}}}, {{0}}, {{255}})}};"
        )
        step = f"g_[rng.integers(0, {size})] += rng.random(); return {{g_[3], false, false}};"
        observe = f"for (int i = 0; i < {16 * size}; ++i) row.observation<std::uint8_t>()[i] = x_ * i;"
        members = f"double g_[{size}]{{}};"
        file = own_env(tmp_path / f"own{size}.h", spec=spec, step=step, observe=observe, members=members)
        library = stepmill.compile(file)
        place = Place.of(library)
        with stepmill.make(library, num_envs=1) as pool:
            return nvrtc.compile_kernel(Form.of(pool, place.env_class).source(place), 90, [], definitions())

    assert abs(len(image(2000)) - len(image(500))) < 1000


ENV = """
#include <stepmill/env.h>
{include}
class Odd {{
 public:
  static constexpr bool kPlainMemory = true;
  static stepmill::EnvSpec spec(const stepmill::Config&);
  explicit Odd(const stepmill::Config&);
  void reset(stepmill::Rng& rng, const stepmill::Options&) {{ place_ = rng.random(); }}
  stepmill::Outcome step(const stepmill::ActionRow& action, stepmill::Rng& rng) {{
    {step}
    return {{place_, false, false}};
  }}
  void observe(const stepmill::Row& row) const {{ *row.observation<double>() = place_; }}

 private:
  double place_;
}};
"""
KERNEL = """
#include "gpu/prelude.h"
#include "odd.h"
#include "gpu/kernel.h"
struct Form {
  static constexpr sm_autoreset kAutoreset = SM_NEXT_STEP;
  using Observation = stepmill::gpu::Arrays<8>;
  using Info = stepmill::gpu::Arrays<>;
  using Action = stepmill::gpu::Arrays<8>;
  static bool put_in_space(void* const*) { return false; }
};
STEPMILL_GPU_ENV(Odd, Form)
"""


NAMESPACE = "#include <algorithm>\n#include <cmath>\n#include <cstring>\nusing namespace std;"
OWN_ERROR = """
#include <exception>
#include <string>
struct Lost : std::exception {
  explicit Lost(int where) : where_(where) {}
  const char* what() const noexcept override { return where_ > 1 ? "far" : "near"; }
  int where_;
};
struct Wrong : std::runtime_error {
  explicit Wrong(double at) : std::runtime_error("wrong at " + std::to_string(at)) {}
};
"""


def compile_odd(folder: Path, step: str, include: str = "") -> bytes:
    (folder / "odd.h").write_text(ENV.format(step=step, include=include))
    return nvrtc.compile_kernel(KERNEL, 90, [folder])


def test_an_env_that_only_computes_compiles(tmp_path: Path) -> None:
    step = """
      std::array<double, 4> parts{};
      for (double& part : parts) part = rng.normal();
      place_ = std::clamp(std::accumulate(parts.begin(), parts.end(), 0.0), -1.0, std::pow(2.0, 0.5));
      if (!std::isfinite(place_)) throw std::runtime_error("lost at " + std::to_string(place_));
      place_ += std::sqrt(2) + std::atan2(1.0F, place_) + std::pow(2, action.index()) + std::max({place_, 0.5, 0.25});
      try { place_ += action.index(); } catch (...) { place_ = 0; }
    """
    includes = "#include <array>\n#include <numeric>\n#include <cmath>\n#include <algorithm>"
    assert compile_odd(tmp_path, step, includes).startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("step", "include"),
    [
        ("place_ = std::max(place_, 1.0); std::swap(place_, place_); place_ = std::abs(place_);", ""),
        ("int all[3]{}; place_ = *std::begin(all) + std::size(all); std::fill(all, all + 3, 1);", ""),
        ("place_ = INT32_MAX + std::numeric_limits<float>::max();", ""),
        ("place_ = sin(place_) + abs(place_) + sqrt(2) + pow(place_, 2.0) + max(1, 2) + isnan(place_);", NAMESPACE),
        ("swap(place_, place_); memmove(&place_, &place_, 8); place_ = clamp(place_, 0.0, 2.0);", NAMESPACE),
        ("place_ = sin(place_) + fabsf(2.0F) + M_PI + INFINITY + NULL;", "#include <math.h>\n#include <stddef.h>"),
        ("uint8_t all[3]; memset(all, 0, sizeof all); place_ = UINT8_MAX;", "#include <stdint.h>\n#include <string.h>"),
        ("if (place_ > 1) throw Lost(3);", OWN_ERROR),
        ("if (place_ > 1) throw Wrong(place_);", OWN_ERROR),
    ],
)
def test_an_env_that_compiles_on_the_host_compiles_with_as_few_headers(tmp_path: Path, step: str, include: str) -> None:
    assert compile_odd(tmp_path, step, include).startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("step", "include", "named"),
    [
        ("std::vector<double> all(3); all.push_back(1.0); place_ = all[0];", "#include <vector>", "vector"),
        ('std::string text = "a"; text += "b"; place_ = text.size();', "#include <string>", "string"),
        ("try { place_ = 1; } catch (const std::exception& error) { place_ = *error.what(); }", "", '"error"'),
        ("place_ = 1;", "#include <unordered_map>", "unordered_map"),
        ("place_ = read_sensor();", "", '"read_sensor"'),
    ],
)
def test_the_log_names_what_a_gpu_does_not_have(tmp_path: Path, step: str, include: str, named: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_odd(tmp_path, step, include)
    assert named in caught.value.output


@pytest.mark.parametrize(
    ("step", "include", "sentence"),
    [
        ("place_ = place_ > 1 ? throw 1 : 2.0;", "", "it throws inside of `? :`, which a GPU cannot: use an `if`"),
        ("place_ = place_ > 1 ? 2.0 : throw 1;", "", "it throws inside of `? :`, which a GPU cannot: use an `if`"),
        ("try { place_ = 1; } catch (...) {\n throw; }", "", "it throws again what it caught, which a GPU cannot"),
        ("try { place_ = 1; } catch (const std::exception& e) {\n place_ = *e.what(); }", "", "expected catch (...)"),
        ("try { place_ = 1; } catch (int) { place_ = 2; } catch (...) { place_ = 3; }", "", "expected catch (...)"),
        ("place_ = std::nth(place_);", "#include <cmath>", "it uses std::nth, which a GPU does not have"),
        ("place_ = kRoot;", "#include <cmath>\nstatic const double kRoot = std::sqrt(2.0);", "make it constexpr"),
        ("long double sum = place_; place_ = sum * 2;", "", "it uses long double, which a GPU does not have"),
        ("place_ = read_sensor();", "", "it uses read_sensor (odd.h, line 11), which the small standard"),
        ("place_ = ::rand() + FP_NAN;", "#include <cmath>", "it uses rand (odd.h, line 11), which the small standard"),
    ],
)
def test_what_does_not_compile_is_said_in_a_sentence(tmp_path: Path, step: str, include: str, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_odd(tmp_path, step, include)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_only_the_host_calls_can_be_kept_from_a_gpu(tmp_path: Path) -> None:
    """As the sentence about a missing name advises."""
    uses = "static double read() { return read_sensor(); }"
    with pytest.raises(CompileError, match="between `#ifndef STEPMILL_GPU` and `#endif`"):
        compile_odd(tmp_path, "", f"struct Sensor {{ {uses} }};")
    kept = f"struct Sensor {{\n#ifndef STEPMILL_GPU\n{uses}\n#endif\n}};"
    assert compile_odd(tmp_path, "", kept).startswith(b"\x7fELF")


def test_a_name_that_is_missing_after_another_error_is_not_the_sentence(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        compile_odd(tmp_path, 'int at = "a"; place_ = at + nowhere;')
    first, second = str(caught.value).splitlines()
    assert "cannot be used to initialize" in first
    assert second.endswith('error: identifier "nowhere" is undefined')


@pytest.mark.parametrize(
    ("step", "include"),
    [
        ("double all[3] = {3, 1, 2}; std::sort(all, all + 3); place_ = all[0];", "#include <algorithm>"),
        ('std::printf("at %f", place_);', "#include <cstdio>"),
        ("assert(place_ < 1);", "#include <cassert>"),
        # What only the host calls.
        ("", "#include <memory>\ninline auto kept() { return std::shared_ptr<const int>(std::make_shared<int>(3)); }"),
    ],
)
def test_what_a_gpu_has_besides(tmp_path: Path, step: str, include: str) -> None:
    assert compile_odd(tmp_path, step, include).startswith(b"\x7fELF")
