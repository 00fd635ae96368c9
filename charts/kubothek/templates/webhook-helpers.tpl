{{/* What the webhook needs of the operator's pod: empty unless webhook.enabled. */}}
{{- define "kubothek.webhook.env" -}}
{{- if .Values.webhook.enabled -}}
- {name: KUBOTHEK_WEBHOOK_PORT, value: {{ .Values.webhook.port | quote }}}
- {name: KUBOTHEK_WEBHOOK_SERVICE, value: {{ printf "%s-webhook.%s" (include "kubothek.name" .) .Release.Namespace | quote }}}
- {name: KUBOTHEK_WEBHOOK_CONFIGURATION, value: {{ include "kubothek.webhook.configuration" . | quote }}}
{{- if .Values.webhook.certManager.enabled }}
- {name: KUBOTHEK_WEBHOOK_CERTIFICATES, value: /etc/kubothek/webhook}
{{- else }}
- {name: KUBOTHEK_WEBHOOK_SECRET, value: {{ include "kubothek.webhook.secret" . | quote }}}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "kubothek.webhook.ports" -}}
{{- if .Values.webhook.enabled -}}
- {name: webhook, containerPort: {{ .Values.webhook.port }}}
{{- end -}}
{{- end -}}

{{- define "kubothek.webhook.volumeMounts" -}}
{{- if and .Values.webhook.enabled .Values.webhook.certManager.enabled -}}
- {name: webhook, mountPath: /etc/kubothek/webhook, readOnly: true}
{{- end -}}
{{- end -}}

{{- define "kubothek.webhook.volumes" -}}
{{- if and .Values.webhook.enabled .Values.webhook.certManager.enabled -}}
- name: webhook
  secret: {secretName: {{ include "kubothek.webhook.secret" . }}}
{{- end -}}
{{- end -}}

{{- define "kubothek.webhook.secret" -}}
{{ include "kubothek.name" . }}-webhook
{{- end -}}

{{/* Of the whole cluster: other releases may be in other namespaces. */}}
{{- define "kubothek.webhook.configuration" -}}
{{ include "kubothek.name" . }}-{{ .Release.Namespace }}
{{- end -}}
