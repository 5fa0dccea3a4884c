{{- define "streamrt.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels that never change, because selectors cannot. */}}
{{- define "streamrt.selector" -}}
app.kubernetes.io/name: streamrt
app.kubernetes.io/instance: {{ include "streamrt.fullname" . }}
{{- end -}}

{{- define "streamrt.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "streamrt.settings" -}}
STREAMRT_BROKER_ADDRESS: {{ .Values.broker | quote }}
STREAMRT_CONSUMER_GROUP: {{ .Values.consumerGroup | quote }}
STREAMRT_CONTROL: {{ printf "0.0.0.0:%d" (int .Values.control.port) | quote }}
STREAMRT_SPARK_MASTER: {{ printf "%s[%d]" (ternary "processes" "local" .Values.processes) (int .Values.slots) | quote }}
{{- if and .Values.processes (not (hasKey .Values.config "processing_mode")) }}
STREAMRT_PROCESSING_MODE: "resident"
{{- end }}
{{- range $name, $value := .Values.config }}
{{- /* JSON writes numbers as they are; otherwise a million would become 1e+06. */}}
STREAMRT_{{ upper $name }}: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end -}}

{{- define "streamrt.pod" -}}
metadata:
  labels:
    {{- include "streamrt.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # New settings need new pods: change this with the ConfigMap.
    streamrt/settings: {{ include "streamrt.settings" . | sha256sum | trunc 16 | quote }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  # The program asks nothing of Kubernetes.
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .Values.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    # The volume belongs to the user of the image.
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: application
      image: {{ include "streamrt.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      {{- with .Values.command }}
      # Below the init process of the image.
      args:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: ["ALL"]
      ports:
        - name: control
          containerPort: {{ .Values.control.port }}
      envFrom:
        - configMapRef:
            name: {{ include "streamrt.fullname" . }}
        {{- with .Values.envFrom }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      env:
        - name: STREAMRT_CONTROL_TOKEN
          valueFrom:
            secretKeyRef:
              name: {{ .Values.control.tokenSecret.name }}
              key: {{ .Values.control.tokenSecret.key }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      # The control server answers before Java starts and before state is restored: neither needs time here.
      startupProbe:
        httpGet: {path: /live, port: control}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: {{ div (add .Values.probes.startupSeconds 4) 5 }}
      livenessProbe:
        httpGet: {path: /live, port: control}
        periodSeconds: 10
        timeoutSeconds: 10
        failureThreshold: {{ div (add .Values.probes.livenessSeconds 9) 10 }}
      # 503 during the start and restores, after a failure, and if a partition makes no progress.
      readinessProbe:
        httpGet: {path: /ready, port: control}
        periodSeconds: 10
        timeoutSeconds: 10
        failureThreshold: {{ div (add .Values.probes.readinessSeconds 9) 10 }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: streamrt, mountPath: /var/lib/streamrt}
        - {name: shm, mountPath: /dev/shm}
        - {name: tmp, mountPath: /tmp}
        {{- range $index, $mount := .Values.secretMounts }}
        - {name: secret-{{ $index }}, mountPath: {{ $mount.mountPath | quote }}, readOnly: true}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- if not .Values.stateful }}
    - name: streamrt
      emptyDir: {sizeLimit: {{ .Values.volume.size }}}
    {{- end }}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ .Values.sharedMemory }}}
    - name: tmp
      emptyDir: {sizeLimit: 1Gi}
    {{- range $index, $mount := .Values.secretMounts }}
    - name: secret-{{ $index }}
      secret: {secretName: {{ $mount.name }}, defaultMode: 0440}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
