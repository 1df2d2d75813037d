package lb

// AllDown is how new connections are handled while no endpoint of a service is up.
type AllDown uint8

// The choices.
const (
	AllDownRefuse AllDown = iota
	AllDownPanic
)

func allDowns() []choice[AllDown] {
	return []choice[AllDown]{
		{value: AllDownRefuse, word: "refuse", help: "refuse them as set by --refuse"},
		{value: AllDownPanic, word: "panic", help: "distribute them to all endpoints as if all were up"},
	}
}

// String returns the word of flags, JSON and text.
func (a AllDown) String() string { return wordOf("all down", a, allDowns()) }
