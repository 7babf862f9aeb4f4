#!/usr/bin/env bash
# Makes an environment with DI-engine 0.5.3 and the packages that test it: scripts/ding_env.sh FOLDER
#
# DI-engine needs an older setuptools than newer versions of torch do. By itself, pip then installs an older torch, with
# gigabytes of CUDA. So torch comes first, then what DI-engine imports, and DI-engine last, without its dependencies.
# `pip check` complains about the result, for packages that nothing here imports.
set -euo pipefail
venv=${1:?usage: scripts/ding_env.sh FOLDER}
"${PYTHON:-python3}" -m venv "$venv"
install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

install torch==2.13.0
install \
  numpy==1.26.4 gymnasium==1.4.0 dm-env==1.6 cloudpickle==3.1.2 pytest==9.2.0 \
  DI-treetensor==0.5.0 hbutils==0.14.2 easydict==1.13 einops==0.8.2 enum-tools==0.13.0 flask==2.0.3 hickle==5.0.3 \
  matplotlib==3.11.2 mpire==2.10.2 pynng==0.9.0 pyyaml==6.0.3 redis==8.1.0 requests==2.34.2 rich==15.0.0 \
  tabulate==0.10.0 tensorboardX==2.6.5 trueskill==0.4.5 urlobject==3.0.0 wandb==0.19.0 werkzeug==2.0.3 yapf==0.29.0
install --no-deps gym==0.25.1 gym-notices==0.1.0 DI-toolkit==0.3.0 DI-engine==0.5.3
# Its multi-agent envs import old PettingZoo envs, which declare an older Gymnasium but run with this one.
install --no-deps PettingZoo==1.22.3 pygame==2.6.1
