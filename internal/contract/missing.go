package contract

// Notes of unsupported rows: the feature, that it is missing, and an alternative.
const (
	noK8sMeta = "get ct does not show names of pods: start kube-loxilb without --enableK8sMetadata"
	noOAuth   = "OAuth2 is not part of this build: use the token of --manualtoken, or the UNIX socket"
	noLicense = "this build needs no license: all of it is available"
)
