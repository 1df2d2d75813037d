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

// TestRefusal checks which errors mean that no change was made, and that the error of a full etcd
// has a hint.
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
		err := plainError(clientv3.ContextError(t.Context(), status.Error(c.code, c.text)))
		if errors.Is(err, store.ErrRefused) != c.refused || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, refused: %t", c.text, err, errors.Is(err, store.ErrRefused))
		}
	}
}
