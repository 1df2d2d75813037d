package lb

// Difference is a place where the data path is not what it should be: in one sentence.
type Difference struct {
	Table string // the map, the variables, or what else was compared
	Row   string // which of its rows
	What  string // what is wrong with it
	Mend  string // what mends it, where applying it again does not; empty: `loxicmd verify --repair`
}

func (d Difference) String() string { return d.Table + ": " + d.Row + " " + d.What }

// Compared is what the comparison of a table has shown.
type Compared struct {
	Table       string
	Rows        int // that were compared
	Differences []Difference
	Unsettled   int   // rows of what was changing at that moment
	Err         error // why the table could not be read
}

// OtherProgram is a BPF program of somebody else's at an interface.
type OtherProgram struct {
	Interface, Hook, Name string
	Before                bool // it sees packets before ours
}
