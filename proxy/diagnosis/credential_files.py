"""Files with credentials that an agent of this user could read past the proxy. Named, never opened."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

# Below the home directory; a star stands for any name.
IN_HOME: Final = (
    ".aws/credentials",
    ".aws/sso/cache/*.json",
    ".azure/msal_token_cache.json",
    ".bundle/config",
    ".cache/huggingface/token",
    ".cargo/credentials.toml",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".composer/auth.json",
    ".config/gcloud/access_tokens.db",
    ".config/gcloud/application_default_credentials.json",
    ".config/gcloud/credentials.db",
    ".config/gh/hosts.yml",
    ".config/git/credentials",
    ".config/glab-cli/config.yml",
    ".config/hub",
    ".config/pip/pip.conf",
    ".config/stripe/config.toml",
    ".docker/config.json",
    ".gem/credentials",
    ".git-credentials",
    ".gradle/gradle.properties",
    ".kube/config",
    ".m2/settings.xml",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".ssh/id_*",
    ".terraform.d/credentials.tfrc.json",
    ".vault-token",
    ".yarnrc.yml",
)
ELSEWHERE: Final = (
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "/var/run/secrets/eks.amazonaws.com/serviceaccount/token",
    "/etc/kubernetes/admin.conf",
)


def readable_files(environment: Mapping[str, str], elsewhere: tuple[str, ...] = ELSEWHERE) -> list[Path]:
    """Those that exist and that this user may read, in the order of their names."""
    home = Path(environment.get("HOME") or Path.home())
    found = [*_in_home(home), *map(Path, elsewhere)]
    return sorted(path for path in found if path.is_file() and os.access(path, os.R_OK) and path.suffix != ".pub")


def _in_home(home: Path) -> Iterator[Path]:
    for name in IN_HOME:
        if "*" in name:
            yield from home.glob(name)
        else:
            yield home / name
