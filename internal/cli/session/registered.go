package session

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/kinds"
)

// RegisteredCommands returns the commands of the kinds whose registration describes them.
func RegisteredCommands(o *Options) Commands {
	commands := Commands{}
	for _, k := range kinds.All() {
		r := registeredOf(k)
		if r.about == nil {
			continue
		}
		commands[Get] = append(commands[Get], r.kind(o).Get(o))
		commands[Describe] = append(commands[Describe], r.kind(o).Describe(o))
		if !r.about.CustomDelete {
			commands[Delete] = append(commands[Delete], r.delete(o))
		}
		if r.about.Set != nil {
			commands[r.createVerb()] = append(commands[r.createVerb()], r.create(o))
		}
	}
	return commands
}

// registered is a registered kind and its descriptions.
type registered struct {
	kinds.Any
	words kinds.Words
	about *kinds.Commands // nil: the commands have their own code
}

func registeredOf(k kinds.Any) registered { return registered{k, k.About(), k.Commands()} }

// createVerb returns the verb that creates or changes an object: set for a kind with a single
// object, otherwise create.
func (r registered) createVerb() Verb {
	if r.OnlyKey() != "" {
		return Set
	}
	return Create
}

func (r registered) kind(o *Options) Kind[[]any, any] {
	path, _ := r.Paths()
	return Kind[[]any, any]{
		GetHelp: r.getHelp(), DescribeHelp: r.describeHelp(),
		Word: r.words.Command, Aliases: r.words.Aliases, Key: r.words.List, Object: r.words.Name,
		Fetch: func(c *v1.Client, ctx context.Context, edit ...v1.RequestEditorFn) (*http.Response, error) {
			return send(ctx, c, http.MethodGet, path+"/all", nil, edit...)
		},
		New:   r.NewBody,
		Items: func(list *[]any) *[]any { return list },
		Name:  func(body *any) string { return r.about.Name(*body) },
		Draw:  func(list *[]any) *Table { return r.table(*list, o.Output == "wide") },
	}
}

// table returns a table with a row for each object, or several rows if a cell has several lines.
func (r registered) table(list []any, wide bool) *Table {
	var columns []kinds.Column[any]
	var header []string
	for _, c := range r.about.Columns {
		if wide || !c.Wide {
			columns, header = append(columns, c), append(header, c.Header)
		}
	}
	t := NewTable(header...)
	for _, body := range list {
		cells := make([][]string, len(columns))
		for i, c := range columns {
			cells[i] = strings.Split(c.Cell(body), "\n")
		}
		t.AddLines(cells...)
	}
	return t
}

// getHelp returns the help of get.
func (r registered) getHelp() Help {
	h := Help{Short: "Show " + r.about.Plural, Example: "  loxicmd get " + r.words.Command}
	if r.about.Details != "" {
		h.Short += "; -o wide shows their " + r.about.Details
		h.Example += " -o wide"
	}
	return h
}

// describeHelp returns the help of describe.
func (r registered) describeHelp() Help {
	return Help{
		Short:   "Show " + r.about.Singular + " in full, with its status and events",
		Example: "  loxicmd describe " + r.words.Command,
	}
}

// command returns a command about one object. Its argument is the object's name; a kind with a
// single object takes none.
func (r registered) command(verb Verb) *cobra.Command {
	example := "loxicmd " + string(verb) + " " + r.words.Command
	if r.OnlyKey() != "" {
		return &cobra.Command{Use: r.words.Command, Aliases: r.words.Aliases, Example: "  " + example, Args: cobra.NoArgs}
	}
	example += " " + r.about.Sample
	return &cobra.Command{
		Use:     r.words.Command + " " + r.about.Argument,
		Aliases: r.words.Aliases,
		Example: "  " + example,
		Args:    Exactly("its name, as in: " + example),
	}
}

func (r registered) delete(o *Options) *cobra.Command {
	cmd := r.command(Delete)
	cmd.Short = "Delete " + r.about.Singular
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
			return DeleteAt(ctx, c, r.Any, strings.Join(args, ""), nil)
		})
	}
	return cmd
}

func (r registered) create(o *Options) *cobra.Command {
	cmd := r.command(r.createVerb())
	cmd.Short = "Create or change " + r.about.Singular
	if r.OnlyKey() != "" {
		cmd.Short = "Set up " + r.about.Singular
	}
	body := r.NewBody()
	cmd.Example += r.about.Create
	cmd.Flags().SortFlags = false
	for _, f := range r.about.Flags {
		set := func(value string) error { return f.Set(body, value) }
		if f.Switch {
			cmd.Flags().BoolFunc(f.Name, f.Usage, set)
		} else {
			cmd.Flags().Func(f.Name, f.Usage, set)
		}
		if f.Required {
			_ = cmd.MarkFlagRequired(f.Name) // fails only for unknown flags
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.about.Set(body, strings.Join(args, "")) // the name; empty for a kind with a single object
		return o.CreateAt(cmd.Context(), r.Any, body)
	}
	return cmd
}

// AddFlags declares the flags of a command that changes an existing object, and returns a function
// that sets the given flags in a body. Other properties keep their values, so the help omits
// defaults.
func AddFlags[B any](cmd *cobra.Command, flags []kinds.Flag[*B]) (given func(*B) error) {
	var sets []func(*B) error
	cmd.Flags().SortFlags = false
	for _, f := range flags {
		usage, _, _ := strings.Cut(f.Usage, " (default")
		set := func(value string) error {
			sets = append(sets, func(b *B) error { return f.Set(b, value) })
			return f.Set(new(B), value) // reports a wrong value with the name of the flag
		}
		if f.Switch {
			cmd.Flags().BoolFunc(f.Name, usage, set)
		} else {
			cmd.Flags().Func(f.Name, usage, set)
		}
	}
	return func(b *B) error {
		for _, set := range sets {
			if err := set(b); err != nil {
				return err
			}
		}
		return nil
	}
}

// CreateAt sends the body of an object of a registered kind.
func (o *Options) CreateAt(ctx context.Context, k kinds.Any, body any) error {
	path, _ := k.Paths()
	return o.Create(ctx, func(ctx context.Context, c *v1.Client) (*http.Response, error) {
		return send(ctx, c, http.MethodPost, path, body)
	})
}

// ApplyAt creates or removes several objects of a registered kind atomically.
func (o *Options) ApplyAt(ctx context.Context, k kinds.Any, bodies []any, remove bool) error {
	verb := Create
	if remove {
		verb = Delete
	}
	request := v1.ApplyRequest{
		Remove: remove, Objects: make([]v1.Object, len(bodies)), Doing: string(verb) + " " + k.About().Command,
	}
	for i, body := range bodies {
		spec, err := json.Marshal(body)
		if err != nil {
			return err
		}
		request.Objects[i] = v1.Object{Kind: k.About().Document, Spec: spec}
	}
	client, err := o.Client()
	if err != nil {
		return err
	}
	answer, err := o.Answer(client.ApplyObjects(ctx, request))
	if err != nil {
		return err
	}
	var r v1.ApplyResult
	if err := Decode(answer, &r); err == nil && len(r.Changes) == 0 {
		return o.printResult(answer, "unchanged")
	}
	return o.Done(answer)
}

// DeleteAt deletes an object of a registered kind by its key.
func DeleteAt(ctx context.Context, c *v1.Client, k kinds.Any, key string, query url.Values) (*http.Response, error) {
	path, one := k.Paths()
	path += fillPath(one, key)
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return send(ctx, c, http.MethodDelete, path, nil)
}

// fillPath replaces the parameters of a path with the parts of a key. The last parameter gets the
// rest of the key.
func fillPath(path, key string) string {
	parts := strings.Split(path, "/")
	left := strings.Count(path, "{")
	for i, part := range parts {
		if !strings.HasPrefix(part, "{") {
			continue
		}
		value := key
		if left--; left > 0 {
			value, key, _ = strings.Cut(key, "/")
		}
		parts[i] = url.PathEscape(value)
	}
	return strings.Join(parts, "/")
}

// send sends a request about a registered kind, for which the client has no method. With a nil
// body, the request has none.
func send(ctx context.Context, c *v1.Client, method, path string, body any, edit ...v1.RequestEditorFn) (*http.Response, error) {
	var data bytes.Buffer
	if body != nil {
		encoder := json.NewEncoder(&data)
		if err := encoder.Encode(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Server, "/")+path, &data)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, f := range append(c.RequestEditors, edit...) {
		if err := f(ctx, r); err != nil {
			return nil, err
		}
	}
	return c.Client.Do(r)
}
