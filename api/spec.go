// Package api has the description of the REST API.
package api

import _ "embed"

//go:embed openapi.yaml
var spec []byte

// Spec is openapi.yaml.
func Spec() []byte { return spec }
