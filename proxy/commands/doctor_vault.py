"""`doctor --vault`: logs in, names the capability that is missing on each path, and what the role could read beyond."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.credentials.paths import PathTemplates
from proxy.credentials.store import Reader
from proxy.credentials.stores.vault_rights import Layout, Need, beyond, missing
from proxy.errors import ConfigurationError, StoreError
from proxy.settings import Settings
from proxy.settings.store import CallerJwtAuth, VaultStore

if TYPE_CHECKING:
    from proxy.credentials.stores.vault import VaultStore as OpenVault
    from proxy.credentials.stores.vault_transport import VaultAdapter

PROBE: Final = "doctor-probe"
"""Stands for any tenant, agent, actor or credential whose name the configuration does not say."""


class Finding(NamedTuple):
    """One line of the report. `ok` is None for what is neither right nor wrong."""

    ok: bool | None
    text: str

    def __str__(self) -> str:
        return f"{ {True: 'ok', False: 'FAULT', None: 'note'}[self.ok] }: {self.text}"


async def examine(settings: Settings) -> list[Finding]:
    """What is found. Nothing is written, no record's content is read."""
    from proxy.opening import open_vault

    configured = settings.store
    if not isinstance(configured, VaultStore):
        return [Finding(None, f"the store is of kind {configured.kind}: there is no Vault to examine")]
    if isinstance(configured.auth, CallerJwtAuth) and configured.auth.own is None:
        return [Finding(None, "only callers log in to this Vault: what each may read is theirs to find out")]
    vault = open_vault(configured)
    try:
        await vault.start()
        return [*await _login_findings(vault), *await _rights(vault, settings, configured)]
    except StoreError as error:
        return [Finding(False, str(error))]
    finally:
        await vault.close()


async def _login_findings(vault: OpenVault) -> list[Finding]:
    found = await _ask(vault, "get", "/v1/auth/token/lookup-self")
    policies = ", ".join([*(found.get("policies") or ()), *(found.get("identity_policies") or ())])
    life = f"for {found.get('ttl')} s" if found.get("ttl") else "without end"
    findings = [Finding(True, f"logged in {life}, policies: {policies or 'none'}")]
    if not found.get("ttl"):
        findings.append(Finding(False, "the token never ends: give the role a token_ttl of an hour or less"))
    return findings


async def _rights(vault: OpenVault, settings: Settings, configured: VaultStore) -> list[Finding]:
    needs = list(_needs(settings, configured))
    probes = list(_probes(settings, configured))
    held = await _capabilities(vault, [*(need.path for need in needs), *(path for path, _ in probes)])
    lacking = list(missing(needs, held))
    findings = [_lack(need) for need in lacking]
    findings += [Finding(True, f"{need.capability} on {need.path}") for need in needs if need not in lacking]
    for path, why in probes:
        if can := sorted(set(held.get(path, ())) - {"deny"}):
            findings.append(Finding(False, f"can {', '.join(can)} {path}: {why}"))
    return [*findings, *await _beyond(vault, settings, configured)]


async def _beyond(vault: OpenVault, settings: Settings, configured: VaultStore) -> list[Finding]:
    try:
        acl = await _ask(vault, "get", "/v1/sys/internal/ui/resultant-acl")
    except StoreError:
        return [Finding(None, "Vault does not say what else the token may do (sys/internal/ui/resultant-acl)")]
    if acl.get("root"):
        return [Finding(False, "this is a root token: it can do everything; use a role of its own")]
    found = [Finding(False, f"need not, but can: {path}") for path in beyond(acl, _expected(settings, configured))]
    return found or [
        Finding(True, "nothing beyond what is needed (rules with + in their path are not listed by Vault)")
    ]


def _lack(need: Need) -> Finding:
    return Finding(False if need.level == "needed" else None, f"no {need.capability} on {need.path}: {need.without}")


def _needs(settings: Settings, configured: VaultStore) -> Iterator[Need]:
    """What the proxy reads for each tenant it serves and credential its policies name, and what it does besides."""
    templates = configured.templates()
    for tenant in _tenants(settings):
        for name, per in _uses(settings):
            actor = PROBE if per == "actor" else ""
            layout, path = _place(configured, templates.path(tenant, actor, name, per, PROBE))
            yield Need(layout.api(path), "read", "needed", f"calls with {name} get credential_unavailable")
            yield Need(layout.api(path), "update", "useful", "refreshed tokens and disconnect cannot be stored")
    layout, path = _place(configured, templates.app_path(PROBE))
    yield Need(layout.api(path), "read", "useful", "records that name an app cannot be refreshed")
    if templates.app == PathTemplates().app and not configured.mount_segments:
        without = "agents are kept from an application's token endpoint only once a credential has used it"
        yield Need(layout.api("apps/", "metadata"), "list", "useful", without)
    yield Need("auth/token/renew-self", "update", "useful", "each token is replaced by a login instead of renewed")
    if settings.blocks is not None:
        layout, path = _place(configured, settings.blocks.path)
        yield Need(layout.api(path), "read", "needed", "fleet-wide blocks do not reach this proxy")


def _probes(settings: Settings, configured: VaultStore) -> Iterator[tuple[str, str]]:
    """Paths that nobody who only fetches credentials should be able to use, and why not."""
    templates = configured.templates()
    if "*" not in settings.tenants:
        layout, path = _place(configured, templates.path(PROBE, "", PROBE, "tenant", PROBE))
        yield layout.api(path), f"a tenant's record, though this instance serves {', '.join(settings.tenants)} only"
    yield "sys/policies/acl/root", "policies"
    yield f"sys/mounts/{PROBE}", "engines"
    yield f"sys/auth/{PROBE}", "login methods"
    yield "auth/token/create", "making tokens"
    layout, path = _place(configured, templates.path(PROBE, "", PROBE, "tenant", PROBE))
    yield f"{layout.mount}/config", "the engine's configuration"


def _tenants(settings: Settings) -> Sequence[str]:
    named = [tenant for tenant in settings.tenants if tenant != "*"]
    static = [member.tenant for member in settings.identity.chain if member.kind == "static"]
    return named or static or [PROBE]


def _uses(settings: Settings) -> list[tuple[str, str]]:
    """(credential, per) of every rule; the probe's name when the policies cannot be read."""
    from proxy.rules import load_rules

    wanted = settings.policies
    try:
        rules = load_rules(wanted.dirs, wanted.floor, settings.providers, wanted.default)
    except ConfigurationError:
        return [(PROBE, "tenant")]
    effects = (rule.effect for document in rules.policies.documents for rule in document.allows)
    named = {(effect.credential.name, effect.credential.per) for effect in effects if effect.credential is not None}
    return sorted(named) or [(PROBE, "tenant")]


def _place(configured: VaultStore, path: str) -> tuple[Layout, str]:
    """The engine a path is in, and the path below it."""
    count = configured.mount_segments
    if not count:
        return Layout(configured.mount, configured.kv), path
    segments = path.split("/")
    return Layout("/".join(segments[:count]), configured.kv), "/".join(segments[count:])


def _expected(settings: Settings, configured: VaultStore) -> list[str]:
    """Prefixes below which a template's records are, and whole paths; a template without a literal start has all of its
    mount."""
    templates: PathTemplates = configured.templates()
    found = []
    if settings.blocks is not None:
        layout, path = _place(configured, settings.blocks.path)
        found.append(layout.api(path))
    for template in (templates.tenant, templates.actor, templates.app):
        literal = template.partition("{")[0]
        if configured.mount_segments:
            found.append(literal)
            continue
        layout = Layout(configured.mount, configured.kv)
        found += [layout.api(literal), layout.api(literal, "metadata")]
    return found


async def _capabilities(vault: OpenVault, paths: Iterable[str]) -> Mapping[str, Sequence[str]]:
    body = {"paths": sorted(set(paths))}
    found = await _ask(vault, "post", "/v1/sys/capabilities-self", body)
    return {path: found.get(path) or [] for path in body["paths"]}


async def _ask(vault: OpenVault, method: str, path: str, body: object = None) -> Mapping[str, Any]:
    def send(adapter: VaultAdapter) -> Any:
        return adapter.request(method, path, json=body)

    answer = await vault.session.run(send, Reader())
    found = answer.get("data") if isinstance(answer, Mapping) else None
    return found if isinstance(found, Mapping) else {}
