package session

import (
	"context"
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/kinds"
)

// ListAt requests all objects of a registered kind.
func ListAt(ctx context.Context, c *v1.Client, k kinds.Any) (*http.Response, error) {
	path, _ := k.Paths()
	return send(ctx, c, http.MethodGet, path+"/all", nil)
}
