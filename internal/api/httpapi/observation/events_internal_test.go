package observation

import (
	"testing"

	"loxilb/internal/event"
)

// TestEventsOfService checks that the events of a service include health events of its endpoints
// that name the service.
func TestEventsOfService(t *testing.T) {
	t.Parallel()
	f := eventFilter{object: "service 20.20.20.1:80/tcp"}
	for _, c := range []struct {
		of   event.Body
		want bool
	}{
		{event.Health{Services: []string{"20.20.20.2:80/tcp", "20.20.20.1:80/tcp"}}, true},
		{event.Health{Services: []string{"20.20.20.2:80/tcp"}}, false},
		{applied("20.20.20.1:80/tcp"), true},
		{applied("20.20.20.2:80/tcp"), false},
	} {
		if f.matches(&event.Event{Body: c.of}) != c.want {
			t.Errorf("%+v, want %t", c.of, c.want)
		}
	}
}

func applied(key string) event.Object {
	return event.Object{ObjectKind: "service", Key: key, Version: 1, Action: event.Applied}
}
