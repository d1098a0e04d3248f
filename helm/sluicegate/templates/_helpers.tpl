{{- define "sluicegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "sluicegate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "sluicegate.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "sluicegate.name" .) | trunc 63 | trimSuffix "-" }}
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

{{- define "sluicegate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "sluicegate.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "sluicegate.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* The configuration file. Relative paths in it would be relative to a read-only folder, so all are absolute. */}}
{{- define "sluicegate.config" -}}
{{- $written := dict
  "listeners" (list
    (dict "kind" "proxy" "bind" (printf "127.0.0.1:%d" (int .Values.ports.proxy)))
    (dict "kind" "base-url" "bind" (printf "127.0.0.1:%d" (int .Values.ports.baseUrl))))
  "ops" (printf "0.0.0.0:%d" (int .Values.ports.ops))
  "control" "unix:/run/sluicegate/control.sock"
  "identity" (list (dict "kind" "static" "tenant" .Values.tenant "agent" .Values.agent))
  "tenants" (list .Values.tenant)
  "store" .Values.store
  "policies" (dict "dirs" (list "/etc/sluicegate-policies"))
  "ca" (dict "dir" "/run/sluicegate/ca")
  "audit" (dict "sink" "stdout")
}}
{{- if .Values.extraCA }}
{{- $_ := set $written "upstream" (dict "extra_ca_file" "/etc/sluicegate/extra-ca.pem") }}
{{- end }}
{{- toYaml (mergeOverwrite $written (deepCopy .Values.config)) }}
{{- end }}

{{- /* What HTTP clients read to find the proxy and to trust its certificates; both spellings, since clients differ. */}}
{{- define "sluicegate.clientEnvironment" -}}
{{- $proxy := printf "http://127.0.0.1:%d" (int .Values.ports.proxy) }}
{{- range list "HTTP_PROXY" "HTTPS_PROXY" "http_proxy" "https_proxy" }}
- {name: {{ . }}, value: {{ $proxy | quote }}}
{{- end }}
{{- range list "NO_PROXY" "no_proxy" }}
- {name: {{ . }}, value: "localhost,127.0.0.1,::1"}
{{- end }}
{{- range list "SSL_CERT_FILE" "REQUESTS_CA_BUNDLE" "CURL_CA_BUNDLE" "GIT_SSL_CAINFO" "NODE_EXTRA_CA_CERTS" "DENO_CERT" "AWS_CA_BUNDLE" "CARGO_HTTP_CAINFO" "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH" }}
- {name: {{ . }}, value: /run/sluicegate-trust/ca-bundle.pem}
{{- end }}
- {name: NODE_USE_ENV_PROXY, value: "1"}
{{- end }}

{{- define "sluicegate.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
