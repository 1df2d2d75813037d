package report

// Difference is one deviation of the data path from the expected state, as a sentence.
type Difference struct {
	Table string // the compared object: a map, variables, or others
	Row   string // the row in it
	What  string // the deviation
	Fix   string // how to repair it, if applying it again does not; empty: `loxicmd verify --repair`
}

func (d Difference) String() string { return d.Table + ": " + d.Row + " " + d.What }

// Compared is the result of comparing a table.
type Compared struct {
	Table       string
	Rows        int // number of compared rows
	Differences []Difference
	Unsettled   int   // rows that changed during the comparison
	Err         error // why the table could not be read
}

// OtherProgram is another owner's BPF program at an interface.
type OtherProgram struct {
	Interface, Hook, Name string
	Before                bool // it sees packets before ours
}
