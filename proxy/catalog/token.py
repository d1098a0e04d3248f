"""The `token:` block of a provider file: where its token endpoint is, and how that differs from RFC 6749."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from proxy.catalog.base import one_or_many
from proxy.catalog.hosts import is_label
from signers.grants.model import DEFAULT_LIFETIME, AssertionStyle, ClientAuthentication, Dialect, LaterStep

_VARIABLE: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
# The host's own variables stand left of a domain that the provider owns; a path segment may be a variable too.
_ENDPOINT: Final = re.compile(r"https://([a-z0-9{}_.-]+\.)?[a-z0-9-]+\.[a-z]{2,}(/[A-Za-z0-9{}_./-]*)?")


def _checked_endpoint(text: str) -> str:
    if not _ENDPOINT.fullmatch(text):
        raise ValueError(f"{text!r} must be an https URL whose host ends in two labels without a variable")
    return text


Endpoint = Annotated[str, AfterValidator(_checked_endpoint)]
Paths = Annotated[list[str], one_or_many(str), Field(min_length=1)]
ReplyField = Literal["access_token", "refresh_token", "expires_in", "expires_at", "expires_on", "scope"]
Parameters = dict[str, str]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, defer_build=True)


class AssertionDocument(_Strict):
    """How assertions for this provider are made (RFC 7523)."""

    lifetime: float = Field(300, gt=0, le=86_400, description="seconds from now to `exp`")
    backdate: float = Field(30, ge=0, le=600, description="seconds by which `iat` lies before now")
    audience: str | None = Field(None, description="`aud`; default: the token endpoint")
    issuer: str = Field("{client_id}", description="over {client_id}, {subject} and {fingerprint}")
    claims: Parameters = {}
    scope_in: Literal["form", "assertion"] = "form"
    is_token: bool = Field(False, description="the assertion is the access token; no endpoint is asked")


class StepDocument(_Strict):
    """A request after the token's issue, with the token so far."""

    endpoint: Endpoint
    method: Literal["GET", "POST"] = "GET"
    headers: Parameters = {}
    parameters: Parameters = Field({}, description="members of a POST's JSON body")
    fields: dict[ReplyField, Paths] = Field({}, description="its reply holds the token from then on, at these paths")
    learns: dict[str, Paths] = Field({}, description="record's variable → where the reply of a first consent tells it")

    @model_validator(mode="after")
    def _useful(self) -> StepDocument:
        if bool(self.fields) == bool(self.learns):
            raise ValueError("a step either gives the token (fields) or tells of the account (learns)")
        if self.parameters and self.method == "GET":
            raise ValueError("only a POST has parameters")
        return self

    def compiled(self) -> LaterStep:
        return LaterStep(
            self.endpoint,
            self.method,
            dict(self.headers),
            dict(self.parameters),
            _compiled(self.fields),
            _compiled(self.learns),
        )


def _compiled(paths: Mapping[Any, list[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(each) for name, each in paths.items()}


class SuccessDocument(_Strict):
    """A member that a successful reply has, where the status does not tell."""

    field: str
    equals: bool | str | int


class TokenDocument(_Strict):
    """How tokens are had from this provider. Every default is what RFC 6749 says."""

    endpoint: Endpoint
    other_endpoints: list[Endpoint] = Field([], description="more that give tokens: kept from agents like the first")
    authorization_endpoint: Endpoint | None = None
    authorization_parameters: Parameters = Field({}, description="what the provider wants beside the RFC's")
    device_endpoint: Endpoint | None = None
    identity_endpoint: Endpoint | None = Field(None, description="says whose account a token is for")
    identity_field: str = Field("sub", description="the member of its reply that names the account")
    vars: dict[str, str] = Field({}, description="values of template variables where no record gives one")
    authentication: ClientAuthentication = "basic"
    body: Literal["form", "json"] = "form"
    scope_separator: Literal[" ", ",", ":"] = " "
    headers: Parameters = {}
    fields: dict[ReplyField, Paths] = Field({}, description="where the reply has what, as dotted paths")
    variants: dict[str, dict[ReplyField, Paths]] = Field({}, description="where one consent gives several tokens")
    success: SuccessDocument | None = None
    errors: dict[str, str] = Field({}, description="the provider's error codes → those of RFC 6749")
    parameters: dict[str, Parameters] = Field({}, description="further parameters by grant type; `*`: all")
    grant_types: dict[str, str] = Field({}, description="grant types that the provider calls otherwise")
    expires_in_unit: Literal["s", "ms"] = "s"
    lifetime: Annotated[float, Field(gt=0)] | Literal["never"] = Field(
        DEFAULT_LIFETIME, description="seconds assumed when nothing says"
    )
    reuse_grace: float = Field(0, ge=0, description="seconds a rotated refresh token is still taken")
    learns: dict[str, Paths] = Field({}, description="record's variable → where the reply to a consent tells it")
    redirect_learns: Parameters = Field({}, description="record's variable → parameter of the redirect that tells it")
    steps: list[StepDocument] = Field([], description="requests that follow each issue, in order")
    assertion: AssertionDocument = AssertionDocument.model_validate({})

    def learned(self) -> set[str]:
        """The record's variables that a consent fills."""
        return {*self.learns, *self.redirect_learns, *(name for step in self.steps for name in step.learns)}

    def compiled(self) -> TokenFacts:
        return TokenFacts(
            template=self.endpoint,
            other_templates=tuple(self.other_endpoints),
            authorization_template=self.authorization_endpoint or "",
            authorization_parameters=dict(self.authorization_parameters),
            device_template=self.device_endpoint or "",
            identity_template=self.identity_endpoint or "",
            identity_field=self.identity_field,
            defaults=dict(self.vars),
            redirect_learns=dict(self.redirect_learns),
            step_templates=tuple(step.compiled() for step in self.steps),
            dialect=self._dialect(),
        )

    def _dialect(self) -> Dialect:
        return Dialect(
            authentication=self.authentication,
            body=self.body,
            scope_separator=self.scope_separator,
            headers=dict(self.headers),
            fields=_compiled(self.fields),
            variants={variant: _compiled(fields) for variant, fields in self.variants.items()},
            success=(self.success.field, self.success.equals) if self.success else None,
            errors=dict(self.errors),
            parameters={grant: dict(values) for grant, values in self.parameters.items()},
            grant_types=dict(self.grant_types),
            expires_in_unit=self.expires_in_unit,
            lifetime=None if self.lifetime == "never" else float(self.lifetime),
            reuse_grace=self.reuse_grace,
            learns=_compiled(self.learns),
            assertion=AssertionStyle(**self.assertion.model_dump()),
        )


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """The block, compiled. Templates may hold variables of the provider's hosts."""

    template: str
    dialect: Dialect
    other_templates: tuple[str, ...] = ()
    authorization_template: str = ""
    authorization_parameters: Mapping[str, str] = field(default_factory=dict)
    device_template: str = ""
    identity_template: str = ""
    identity_field: str = "sub"
    defaults: Mapping[str, str] = field(default_factory=dict)
    redirect_learns: Mapping[str, str] = field(default_factory=dict)
    step_templates: tuple[LaterStep, ...] = ()

    def steps(self, variables: Mapping[str, str]) -> tuple[LaterStep, ...]:
        """What follows each issue. Raises ValueError as `endpoint` does."""
        return tuple(replace(step, url=self.filled(step.url, variables)) for step in self.step_templates)

    def endpoint(self, variables: Mapping[str, str]) -> str:
        """The token endpoint. Raises ValueError naming a variable that is missing or is not one DNS label."""
        return self.filled(self.template, variables)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The templates of all its token endpoints."""
        return (self.template, *self.other_templates)

    def filled(self, template: str, variables: Mapping[str, str]) -> str:
        """A template of this block with its variables. A value is one label, so that it cannot leave its place."""
        values = {**self.defaults, **variables}
        for name in _VARIABLE.findall(template):
            if name not in values:
                raise ValueError(f"var {name!r} of {template} is not given by the record or its app")
            if not is_label(values[name]):
                raise ValueError(f"var {name!r} is not one DNS label (a-z, 0-9, hyphens inside, at most 63)")
            template = template.replace(f"{{{name}}}", values[name])
        return template
