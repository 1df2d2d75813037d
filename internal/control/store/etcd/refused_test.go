package etcd

import (
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"loxilb/internal/control/store"
)

// TestRefusal checks which errors say that a change was certainly not made, and that the one of a
// full etcd says what to do.
func TestRefusal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code    codes.Code
		text    string
		refused bool
		want    string
	}{
		{codes.ResourceExhausted, "etcdserver: mvcc: database space exceeded", true, "mvcc: database space exceeded (see "},
		{codes.PermissionDenied, "etcdserver: permission denied", true, "permission denied"},
		{codes.Unavailable, "etcdserver: request timed out", false, "etcdserver: request timed out"},
	} {
		err := plain(clientv3.ContextError(t.Context(), status.Error(c.code, c.text)))
		if errors.Is(err, store.ErrRefused) != c.refused || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, refused: %t", c.text, err, errors.Is(err, store.ErrRefused))
		}
	}
}
