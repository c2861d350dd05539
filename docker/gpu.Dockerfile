# Training and judging on NVIDIA GPUs with CUDA 12.6 (driver 560 or newer). In a clone:
#   docker build -f docker/gpu.Dockerfile -t paddle-grrm:gpu .
#   docker run --rm --gpus all --shm-size 16g paddle-grrm:gpu
# which checks every GPU code path; then give it a command of docs/recipe.md, with -v for data, downloads and runs.
FROM nvidia/cuda:12.6.3-devel-ubuntu22.04

# Ubuntu keeps no older versions that could be named.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home grrm \
    && install --directory --owner grrm /opt/paddle-grrm

WORKDIR /opt/paddle-grrm
USER 1000
ENV VIRTUAL_ENV=/opt/paddle-grrm/.venv PATH=/opt/paddle-grrm/.venv/bin:$PATH
COPY --chown=grrm . .

ARG PADDLE_INDEX=https://www.paddlepaddle.org.cn/packages/stable/cu126/
RUN python3 -m venv .venv \
    && pip install --no-cache-dir -c constraints.txt --extra-index-url "$PADDLE_INDEX" -e '.[gpu,server,metrics,math]' \
    && python csrc/setup_ops.py install

CMD ["grrm", "doctor", "--gpu"]
