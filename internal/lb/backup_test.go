package lb

import (
	"errors"
	"testing"
)

// TestLevel checks that levels are added until there are enough endpoints.
func TestLevel(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		endpoints string
		below     uint8
		available []uint32
		want      uint8
	}{
		{"10.0.0.1:80,10.0.0.2:80", 0, []uint32{0, 0}, 0},
		{"10.0.0.1:80,10.0.0.2:80,10.0.0.3:80@1", 0, []uint32{1, 0, 1}, 0},
		{"10.0.0.1:80,10.0.0.2:80,10.0.0.3:80@1", 0, []uint32{0, 0, 1}, 1},
		{"10.0.0.1:80,10.0.0.2:80,10.0.0.3:80@1", 50, []uint32{1, 0, 1}, 0},
		{"10.0.0.1:80,10.0.0.2:80,10.0.0.3:80@1", 51, []uint32{1, 0, 1}, 1},
		{"10.0.0.1:80:3,10.0.0.2:80,10.0.0.3:80@1", 75, []uint32{3, 0, 1}, 0},
		{"10.0.0.1:80:3,10.0.0.2:80,10.0.0.3:80@1", 75, []uint32{0, 1, 1}, 1},
		{"10.0.0.1:80,10.0.0.2:80@1,10.0.0.3:80@4", 0, []uint32{0, 0, 1}, 4},
		{"10.0.0.1:80,10.0.0.2:80@1,10.0.0.3:80@4", 0, []uint32{0, 0, 0}, 4},
		{"10.0.0.3:80@4,10.0.0.1:80,10.0.0.2:80@1", 100, []uint32{1, 0, 1}, 1},
		{"10.0.0.1:80:0,10.0.0.2:80@1", 100, []uint32{0, 1}, 1},
		{"10.0.0.1:80@2,10.0.0.2:80@2", 100, []uint32{1, 1}, 2},
	} {
		s, err := ParseService("20.20.20.1:80/tcp endpoints=" + tc.endpoints)
		if err != nil {
			t.Fatal(err)
		}
		s.FailoverBelow = tc.below
		if got := s.ActiveLevel(tc.available); got != tc.want {
			t.Errorf("%s below %d, %v take connections: level %d, want %d", tc.endpoints, tc.below, tc.available, got, tc.want)
		}
	}
}

// TestBackupText checks that a level is written and read, and that an invalid one is refused by
// name.
func TestBackupText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"10.0.0.1:80@1", "10.0.0.1:80:7@9", "[2001:db8::1]:80-90:0@2"} {
		if e, err := ParseEndpoint(text); err != nil || e.String() != text {
			t.Errorf("%s: got %v, %v, want the same text", text, e, err)
		}
	}
	if e, err := ParseEndpointFlag("2001:db8::1:5@3"); err != nil || e.Backup != 3 || e.Weight != 5 {
		t.Errorf("got %+v, %v, want no error, e.Backup == 3, e.Weight == 5", e, err)
	}
	for _, text := range []string{"10.0.0.1:80@10", "10.0.0.1:80@", "10.0.0.1:80@x", "10.0.0.1:80@-1", "10.0.0.1:80@1@2"} {
		var fe *FieldError
		if _, err := ParseEndpoint(text); !errors.As(err, &fe) || fe.Field != FieldBackup {
			t.Errorf("%s: got %v, want an error about the backup level", text, err)
		}
	}
}
