package contract

// Notes for groups of missing rows: their name, that they are missing, and an alternative.
const (
	noK8sMeta = "pods of Kubernetes are not told apart in get ct: start kube-loxilb without --enableK8sMetadata"
	noOAuth   = "OAuth2 is not part of this build: use the token of --manualtoken, or the UNIX socket"
	noLicense = "there are no licences to upgrade in this build: everything that it has is open"
)
