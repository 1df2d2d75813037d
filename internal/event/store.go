package event

import "fmt"

// Store is the store that nodes share, which went away or is back.
type Store struct {
	Servers string
	Action  Action
	Reason  string // of Failed
}

// Kind is KindStore.
func (Store) Kind() Kind { return KindStore }

// Object names the servers.
func (s Store) Object() string { return s.Servers }

// Act is Failed or Solved.
func (s Store) Act() Action { return s.Action }

func (s Store) String() string {
	if s.Action == Failed {
		return fmt.Sprintf("%s cannot be used, and shared objects stay as they are: %s", s.Servers, s.Reason)
	}
	return s.Servers + " can be used again"
}
