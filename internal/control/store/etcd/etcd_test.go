package etcd

import (
	"strings"
	"testing"
)

// TestRefused checks that the error says why no server can be reached.
func TestRefused(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Servers: []string{"127.0.0.1:1", "127.0.0.2:1"}, Prefix: "/test"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err = s.Revision(t.Context(), "head"); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
}
