// Package v1 is the REST API of loxilb as Go: types, a client and the interface of a server. All of
// it but Choice is generated from api/openapi.yaml.
package v1

//go:generate go tool oapi-codegen -config ../oapi-codegen.yaml ../openapi.yaml
