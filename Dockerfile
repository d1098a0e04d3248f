# Sluicegate's image. Build: docker build --tag sluicegate .
#
# The base is named by tag here. A release pins it by digest without changing this file:
#   docker build --build-arg PYTHON_IMAGE=python:3.11-slim-trixie@sha256:<digest read from the registry> --tag sluicegate:0.1.0 .
# Debian trixie is chosen for its OpenSSL 3.5, whose handshakes cost less than those of 3.0.
ARG PYTHON_IMAGE=python:3.11-slim-trixie

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
COPY requirements.lock requirements-build.lock ./
RUN python -m venv /opt/wheel-builder \
    && /opt/wheel-builder/bin/python -m pip install --require-hashes --requirement requirements-build.lock \
    && python -m venv /opt/sluicegate \
    && /opt/sluicegate/bin/python -m pip install --require-hashes --only-binary :all: --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY proxy ./proxy
COPY signers ./signers
COPY policies ./policies
COPY providers ./providers
RUN /opt/wheel-builder/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /opt/wheels . \
    && /opt/sluicegate/bin/python -m pip install --no-deps --no-index --find-links /opt/wheels sluicegate \
    && /opt/sluicegate/bin/python -m pip uninstall --yes pip setuptools \
    && /opt/sluicegate/bin/python -m proxy.sbom > /opt/sluicegate/sluicegate-sbom.json

FROM ${PYTHON_IMAGE} AS proxy
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sluicegate" \
      org.opencontainers.image.description="A credential and egress proxy that stands beside each AI agent" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/sluicegate /opt/sluicegate
# Everything was compiled when it was installed, so nothing needs to be written where the program lies.
ENV PATH=/opt/sluicegate/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SLUICEGATE_CONFIG=/etc/sluicegate/sluicegate.yaml
WORKDIR /var/lib/sluicegate
# By number, so that Kubernetes can see that it is not root. There is no entry in /etc/passwd and none is needed.
USER 64100:64100
# No HEALTHCHECK: Kubernetes ignores it and asks /healthz and /readyz itself.
ENTRYPOINT ["sluicegate"]
CMD ["serve"]

# The same with nft, for the init container that closes a pod: docker build --target firewall .
FROM proxy AS firewall
USER 0:0
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends nftables \
    && rm -rf /var/lib/apt/lists/*
USER 64100:64100

# What `docker build .` makes.
FROM proxy
