{{- define "muster-operator.name" -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end }}
{{- define "muster-operator.selector" -}}
app.kubernetes.io/name: muster-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "muster-operator.labels" -}}
{{ include "muster-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "muster-operator.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
