{{- define "sluicegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "sluicegate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "sluicegate.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "sluicegate.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "sluicegate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sluicegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sluicegate.labels" -}}
{{ include "sluicegate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Takes (dict "image" … "root" $): REPOSITORY@DIGEST, else REPOSITORY:TAG. */}}
{{- define "sluicegate.image" -}}
{{- if .image.digest }}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else }}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) }}
{{- end }}
{{- end }}

{{- define "sluicegate.restricted" -}}
runAsUser: 64100
runAsGroup: 64100
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* What webhook and gateway pods have in common. */}}
{{- define "sluicegate.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Takes (dict "part" … "root" $): replicas apart from each other, but never unscheduled for it. */}}
{{- define "sluicegate.spread" -}}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "sluicegate.selectorLabels" $.root | nindent 6 }}
      app.kubernetes.io/component: {{ $.part }}
{{- end }}
{{- end }}

{{- /* The webhook's file. Relative paths in it start at its own folder. */}}
{{- define "sluicegate.webhookConfig" -}}
{{- $name := printf "%s-webhook" (include "sluicegate.fullname" .) }}
{{- $tls := dict "kind" "files" "cert" "/etc/sluicegate-tls/tls.crt" "key" "/etc/sluicegate-tls/tls.key" }}
{{- if not .Values.webhook.certManager.enabled }}
{{- $tls = dict "kind" "self_managed" "namespace" .Release.Namespace "secret" (printf "%s-tls" $name) "service" $name
    "configurations" (list (printf "mutating/%s" $name) (printf "validating/%s" $name)) }}
{{- end }}
{{- $written := dict
  "bind" "0.0.0.0:8443"
  "ops" "0.0.0.0:18490"
  "tls" $tls
  "image" (dict "name" (include "sluicegate.image" (dict "image" .Values.image "root" .)) "pull_policy" .Values.image.pullPolicy)
  "firewall_image" (dict "name" (include "sluicegate.image" (dict "image" .Values.firewallImage "root" .)) "pull_policy" .Values.firewallImage.pullPolicy)
  "default_profile" .Values.webhook.defaultProfile
  "profiles" .Values.webhook.profiles
}}
{{- if .Values.webhook.floor }}
{{- $_ := set $written "floor" "/etc/sluicegate-floor" }}
{{- end }}
{{- if .Values.roots }}
{{- $_ := set $written "roots" "/etc/sluicegate/roots.pem" }}
{{- end }}
{{- toYaml $written }}
{{- end }}

{{- /* The gateway's file. Relative paths in it would be relative to a read-only folder, so all are absolute. */}}
{{- define "sluicegate.gatewayConfig" -}}
{{- $gateway := .Values.gateway }}
{{- $tls := dict "cert" "/etc/sluicegate-tls/tls.crt" "key" "/etc/sluicegate-tls/tls.key" }}
{{- if $gateway.tls.clientCa }}
{{- $_ := set $tls "client_ca" "/etc/sluicegate-tls/ca.crt" }}
{{- end }}
{{- $policies := dict "dirs" (list "/etc/sluicegate-policies") }}
{{- if $gateway.floor }}
{{- $_ := set $policies "floor" "/etc/sluicegate-floor" }}
{{- end }}
{{- $written := dict
  "listeners" (list
    (dict "kind" "proxy" "bind" (printf "0.0.0.0:%d" (int $gateway.ports.proxy)) "tls" $tls)
    (dict "kind" "base-url" "bind" (printf "0.0.0.0:%d" (int $gateway.ports.baseUrl)) "tls" $tls))
  "ops" (printf "0.0.0.0:%d" (int $gateway.ports.ops))
  "control" "unix:/run/sluicegate/control/control.sock"
  "policies" $policies
  "ca" (dict "dir" "/etc/sluicegate-ca" "required" true)
  "state" (dict "dir" "/run/sluicegate/state" "key_file" (ternary "/etc/sluicegate-state/state.key" "/run/sluicegate/state.key" (not (empty $gateway.stateKeySecretName))) "durability" "memory")
  "audit" (dict "sink" "stdout")
}}
{{- if $gateway.tokenReview.enabled }}
{{- $review := $gateway.tokenReview }}
{{- $_ := set $written "identity" (list (dict "kind" "token_review" "issuer" $review.issuer "audience" $review.audience "rules" $review.rules)) }}
{{- end }}
{{- if .Values.roots }}
{{- $_ := set $written "upstream" (dict "extra_ca_file" "/etc/sluicegate/roots.pem") }}
{{- end }}
{{- /* Not mergeOverwrite: it passes over null, which turns things off here. */}}
{{- range $key, $value := $gateway.settings }}
{{- $_ := set $written $key $value }}
{{- end }}
{{- if $gateway.ledgerSecretName }}
{{- $_ := set $written "ledger" (merge (dict "password_file" "/etc/sluicegate-ledger/password") $written.ledger) }}
{{- end }}
{{- toYaml $written }}
{{- end }}

{{- /* Values that are right one by one and wrong together. */}}
{{- define "sluicegate.checks" -}}
{{- $gateway := .Values.gateway }}
{{- if and $gateway.enabled (not $gateway.tokenReview.enabled) (not $gateway.settings.identity) }}
{{- fail "gateway.settings.identity: is required where gateway.tokenReview is off, since nobody could call otherwise" }}
{{- end }}
{{- if and $gateway.enabled (not $gateway.policies) }}
{{- fail "gateway.policies: is empty, so every call would be refused; give it a policy file" }}
{{- end }}
{{- if and $gateway.enabled (not $gateway.volatileLedger) }}
{{- $ledger := get $gateway.settings "ledger" }}
{{- if and (hasKey $gateway.settings "ledger") (kindIs "invalid" $ledger) }}
{{- else if or (not $ledger) (eq (default "sqlite" $ledger.kind) "sqlite") }}
{{- fail "gateway.settings.ledger: sqlite stands on a volume that dies with the pod, so a call could be made twice; name another kind, set it to null, or say gateway.volatileLedger: true" }}
{{- end }}
{{- end }}
{{- if and $gateway.enabled $gateway.ledgerSecretName (ne "postgres" (default "" (default dict (get $gateway.settings "ledger")).kind)) }}
{{- fail "gateway.ledgerSecretName: is of no use but with gateway.settings.ledger of kind postgres" }}
{{- end }}
{{- if not (hasKey .Values.webhook.profiles .Values.webhook.defaultProfile) }}
{{- fail (printf "webhook.defaultProfile: there is no profile %q in webhook.profiles" .Values.webhook.defaultProfile) }}
{{- end }}
{{- if and .Values.contract.providers (not (and .Values.contract.tenant .Values.contract.agent)) }}
{{- fail "contract.tenant, contract.agent: are required with contract.providers; whose credential is asked with?" }}
{{- end }}
{{- if and .Values.contract.enabled .Values.webhook.enabled (not (hasKey .Values.webhook.profiles .Values.contract.profile)) }}
{{- fail (printf "contract.profile: there is no profile %q in webhook.profiles" .Values.contract.profile) }}
{{- end }}
{{- end }}

{{- define "sluicegate.podRule" }}
- {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: Namespaced}
{{- end }}

{{- define "sluicegate.client" }}
service: {name: {{ .name }}, namespace: {{ .root.Release.Namespace }}, path: {{ .path }}, port: 443}
{{- end }}

{{- /* By the namespace's label, or by the pod's own where the namespace has none. */}}
{{- define "sluicegate.selector" }}
namespaceSelector:
  matchExpressions:
    {{- if eq .by "namespace" }}
    # The webhook's own pods, which it cannot inject before it runs.
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ append .root.Values.webhook.ignoredNamespaces .root.Release.Namespace | toJson }}}
    - {key: sluicegate.io/inject, operator: In, values: [enabled]}
    {{- else }}
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ toJson .root.Values.webhook.ignoredNamespaces }}}
    - {key: sluicegate.io/inject, operator: NotIn, values: [enabled]}
objectSelector:
  matchLabels: {sluicegate.io/inject: enabled}
    {{- end }}
{{- end }}

{{- /* A pod that the webhook injects and that then tries every way past the proxy. It ends when the check has. */}}
{{- define "sluicegate.doctorPod" }}
metadata:
  labels:
    {{- include "sluicegate.labels" .root | nindent 4 }}
    app.kubernetes.io/component: doctor
    sluicegate.io/inject: enabled
  annotations:
    sluicegate.io/profile: {{ .profile }}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: doctor
      image: {{ include "sluicegate.image" (dict "image" .root.Values.image "root" .root) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: [doctor, --pod]
      resources:
        requests: {cpu: 10m, memory: 64Mi}
        limits: {memory: 128Mi}
      securityContext:
        runAsUser: 10001
        runAsGroup: 10001
        runAsNonRoot: true
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
        seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sluicegate.gatewayMounts" -}}
{{- $gateway := .Values.gateway }}
- {name: config, mountPath: /etc/sluicegate, readOnly: true}
- {name: policies, mountPath: /etc/sluicegate-policies, readOnly: true}
{{- if $gateway.floor }}
- {name: floor, mountPath: /etc/sluicegate-floor, readOnly: true}
{{- end }}
- {name: tls, mountPath: /etc/sluicegate-tls, readOnly: true}
- {name: ca, mountPath: /etc/sluicegate-ca, readOnly: true}
{{- if $gateway.stateKeySecretName }}
- {name: state-key, mountPath: /etc/sluicegate-state, readOnly: true}
{{- end }}
{{- if $gateway.ledgerSecretName }}
- {name: ledger, mountPath: /etc/sluicegate-ledger, readOnly: true}
{{- end }}
- {name: run, mountPath: /run/sluicegate}
{{- if $gateway.vaultToken.enabled }}
- {name: tokens, mountPath: /var/run/secrets/sluicegate, readOnly: true}
{{- end }}
{{- end }}

{{- /* Takes (dict "name" … "gateway" …). */}}
{{- define "sluicegate.gatewayVolumes" -}}
{{- $name := .name }}
{{- $gateway := .gateway }}
- name: config
  configMap: {name: {{ $name }}}
- name: policies
  configMap: {name: {{ $name }}-policies}
{{- if $gateway.floor }}
- name: floor
  configMap: {name: {{ $name }}-floor}
{{- end }}
- name: tls
  secret: {secretName: {{ $gateway.tls.secretName }}, defaultMode: 0440}
- name: ca
  secret:
    secretName: {{ $gateway.caSecretName }}
    defaultMode: 0440
    items:
      - {key: tls.crt, path: ca.crt}
      - {key: tls.key, path: ca.key}
{{- if $gateway.stateKeySecretName }}
- name: state-key
  secret: {secretName: {{ $gateway.stateKeySecretName }}, defaultMode: 0440}
{{- end }}
{{- if $gateway.ledgerSecretName }}
- name: ledger
  secret: {secretName: {{ $gateway.ledgerSecretName }}, defaultMode: 0440}
{{- end }}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- if $gateway.vaultToken.enabled }}
- name: tokens
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          audience: {{ $gateway.vaultToken.audience }}
          expirationSeconds: {{ $gateway.vaultToken.expirationSeconds }}
          path: vault
{{- end }}
{{- end }}
