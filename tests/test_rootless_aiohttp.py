import os
import subprocess
import sys

SCRIPT = """
import os
from proxy import rootless_aiohttp
before = dict(os.environ)
rootless_aiohttp.load()
assert dict(os.environ) == before
from aiohttp import connector
print(connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509_ca"])
"""


def test_aiohttp_is_loaded_without_roots_and_the_environment_stays_as_it_was():
    environment = {
        **os.environ,
        "SSL_CERT_DIR": "/somewhere",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
