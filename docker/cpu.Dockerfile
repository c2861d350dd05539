# The project on a CPU: training, judging, the demo. In a clone:
#   docker build -f docker/cpu.Dockerfile -t paddle-grrm:cpu .
#   mkdir -p runs  # or Docker makes it as root's, where user 1000 of the container may not write
#   docker run --rm -it --shm-size 2g -v "$PWD/runs:/opt/paddle-grrm/runs" paddle-grrm:cpu make demo JUDGE=metric
FROM python:3.11.14-slim-bookworm

# Debian keeps no older versions that could be named.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home grrm \
    && install --directory --owner grrm /opt/paddle-grrm

WORKDIR /opt/paddle-grrm
USER 1000
COPY --chown=grrm . .

# `make` finds its .venv finished. The kernels are compiled for the machine that builds; others compile their own.
RUN sh tools/bootstrap.sh && .venv/bin/python csrc/setup_ops.py install

ENV PATH=/opt/paddle-grrm/.venv/bin:$PATH
CMD ["grrm", "doctor"]
