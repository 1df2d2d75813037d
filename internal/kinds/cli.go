package kinds

// CLI describes the commands of a kind: get and describe show objects, delete deletes one by its
// name, and create, if Set exists, creates one.
type CLI[B any] struct {
	Texts
	Name    func(*B) string         // of an object
	Set     func(b *B, name string) // sets the name of a new object; nil: create has code of its own
	Flags   []Flag[*B]              // of create
	Columns []Column[*B]            // of get

	CustomDelete bool // delete has code of its own
}

// Texts are the kind's texts in the help.
type Texts struct {
	Singular string // "a policer"
	Plural   string // "policers"
	Details  string // columns that only -o wide shows: "counters"; "": none
	Argument string // an object's name as an argument: "IDENT"
	Sample   string // a name in examples: "pol-hs0"
	Create   string // flags of the example of create, with a space before
}

// A Flag sets a property of a new object.
type Flag[B any] struct {
	Name, Usage string
	Required    bool
	Switch      bool // without a value it is true
	Set         func(b B, value string) error
}

// A Column shows a property of an object.
type Column[B any] struct {
	Header string
	Wide   bool             // only -o wide shows it
	Cell   func(b B) string // lines, if there are several
}

// Commands are a CLI for bodies of any type.
type Commands struct {
	Texts
	Name    func(body any) string
	Set     func(body any, name string) // nil: create has code of its own
	Flags   []Flag[any]
	Columns []Column[any]

	CustomDelete bool // delete has code of its own
}

// Commands returns the kind's commands; nil: they have their own code.
func (k *Kind[T, B]) Commands() *Commands {
	if k.CLI.Singular == "" {
		return nil
	}
	c := &Commands{Texts: k.CLI.Texts, Name: func(body any) string { return k.CLI.Name(body.(*B)) }, CustomDelete: k.CLI.CustomDelete}
	if k.CLI.Set != nil {
		c.Set = func(body any, name string) { k.CLI.Set(body.(*B), name) }
	}
	for _, f := range k.CLI.Flags {
		set := func(body any, value string) error { return f.Set(body.(*B), value) }
		c.Flags = append(c.Flags, Flag[any]{f.Name, f.Usage, f.Required, f.Switch, set})
	}
	for _, column := range k.CLI.Columns {
		cell := func(body any) string { return column.Cell(body.(*B)) }
		c.Columns = append(c.Columns, Column[any]{column.Header, column.Wide, cell})
	}
	return c
}
