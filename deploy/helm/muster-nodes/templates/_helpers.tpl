{{- define "muster-nodes.name" -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end }}
{{- define "muster-nodes.labels" -}}
app.kubernetes.io/name: muster-nodes
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
