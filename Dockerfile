# An image for applications on StreamRT. Put the program at /app/main.py, or give another command:
#
#   docker build -t streamrt .
#   docker run --init -e STREAMRT_BROKER_ADDRESS=kafka:9092 -v "$PWD/main.py:/app/main.py:ro" streamrt

# -- Build: wheels of the locked dependencies, the package, and the Java libraries ------------------------------------
FROM python:3.12-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build

COPY requirements.lock ./
# Every wheel is made from a file whose hash is locked; what is built from source is built by the locked build tools.
RUN awk '/^[a-z]/ {wanted = /^(setuptools|wheel|packaging)==/} wanted' requirements.lock > build-tools.lock \
    && pip install --require-hashes --no-deps -r build-tools.lock \
    && pip wheel --require-hashes --no-build-isolation --wheel-dir /wheels -r requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY connectors connectors
COPY serializers serializers
COPY state state
COPY streamrt streamrt
# Of all wheels, the image gets those that an application needs; the extra `local` brings Java.
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && python -m venv /opt/streamrt/venv \
    && /opt/streamrt/venv/bin/pip install --no-index --find-links /wheels "streamrt[local]" \
    && /opt/streamrt/venv/bin/streamrt jars --directory /opt/streamrt/jars --set spark

# -- Run ---------------------------------------------------------------------------------------------------------------
FROM python:3.12-slim

COPY --from=build /opt/streamrt /opt/streamrt

# STREAMRT_JARS_DIR: the libraries are checked at each start, and nothing is downloaded.
ENV PATH=/opt/streamrt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    STREAMRT_JARS_DIR=/opt/streamrt/jars \
    STREAMRT_STATE_DIR=/var/lib/streamrt/state

RUN useradd --uid 10001 --create-home streamrt \
    && mkdir -p /app /var/lib/streamrt/state \
    && chown -R streamrt:streamrt /app /var/lib/streamrt

USER streamrt
WORKDIR /app
VOLUME /var/lib/streamrt

# Healthy: the program lives, and a broker answers if its address is in the environment. A broker that wants a login does
# not answer to this; replace the check by one with your ConnectionConfig.
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os; from streamrt.kafka import TopicAdmin; os.kill(1, 0); address = os.environ.get('STREAMRT_BROKER_ADDRESS'); address and TopicAdmin(address).wait_for_broker(8)"]

STOPSIGNAL SIGTERM
CMD ["python", "/app/main.py"]
