{{- define "muster-kube.name" -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end }}
{{- define "muster-kube.labels" -}}
app.kubernetes.io/name: muster-kube
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "muster-kube.selector" -}}
app.kubernetes.io/name: muster-kube
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
