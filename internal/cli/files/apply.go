package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/manifest"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
)

// fileHelp describes files of objects.
const fileHelp = "Files are YAML (any number of documents) or JSON. They contain documents of apiVersion netlox/v1 with\n" +
	"kind and spec, lists as printed by `loxicmd get -o json` and `loxicmd save`, or single objects as in POST.\n" +
	"Of a folder, all .yaml, .yml and .json files are read. - is standard input."

// applyFlags are the flags of apply and plan.
type applyFlags struct {
	files   []string
	lists   map[string]*string // files of one kind each, by the existing loxilb's flag
	net     interfaceFlags
	prune   bool
	kinds   []string
	force   bool
	confirm time.Duration
}

// listFlags are the existing loxilb's flags for files of one kind.
var listFlags = []struct{ flag, short, kind, what string }{
	{"lb", "l", kinds.ServiceDocument, "services"},
	{"endpoint", "", kinds.EndpointDocument, "endpoints"},
	{"firewall", "", kinds.RuleDocument, "firewall rules"},
	{"session", "", kinds.SessionDocument, "sessions"},
	{"ulcl", "", kinds.SessionFlowDocument, "session classifiers"},
	{"bfd", "", kinds.BFDDocument, "BFD sessions"},
}

func applyCommand(o *session.Options) *cobra.Command {
	f := &applyFlags{}
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Apply a configuration from files",
		Long: fileHelp + "\n\n" +
			"All files are applied together, or none: every error is reported with its line and column.\n" +
			"Identical objects stay unchanged. Objects that the files do not name are kept, unless --prune is\n" +
			"given.",
		Example: "  loxicmd save -f all.yaml\n  loxicmd plan -f all.yaml\n  loxicmd apply -f all.yaml --confirm=60s && loxicmd confirm\n" +
			"  loxicmd apply -f services/ --prune\n  loxicmd apply --lb /etc/loxilb/lbconfig.txt\n" +
			"  loxicmd apply --ip /etc/loxilb/ipconfig\n  loxicmd apply --per-intf eth0 --ipv4route",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.confirm != 0 && (f.confirm < time.Second || f.confirm > 24*time.Hour || f.confirm%time.Second != 0) {
				return fmt.Errorf("--confirm %s is out of range (allowed: whole seconds, 1s to 24h)", f.confirm)
			}
			return f.run(cmd.Context(), o, v1.ApplyRequest{Force: f.force, Confirm: v1.Seconds(f.confirm / time.Second), Doing: describeSources("apply", f.all())})
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&f.force, "force", false, "proceed even if this cuts connections of the machine itself, such as your SSH session")
	session.DurationVar(cmd.Flags(), &f.confirm, "confirm", "", 0, "roll back after this time unless loxicmd confirm is run, even if the daemon dies meanwhile")
	return cmd
}

func planCommand(o *session.Options) *cobra.Command {
	f := &applyFlags{}
	cmd := &cobra.Command{
		Use:   PlanName,
		Short: "Show what apply would change, and how many live connections that affects",
		Long: fileHelp + "\n\n" +
			"Asks the server what apply would change, and changes nothing. Exits with 0 when there is nothing\n" +
			"to change, 2 when there is, 1 on errors.",
		Example: "  loxicmd plan -f all.yaml\n  loxicmd plan -f services/ --prune",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), o, v1.ApplyRequest{DryRun: true})
		},
	}
	f.register(cmd)
	return cmd
}

func (f *applyFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVarP(&f.files, "file", "f", nil, "file or folder of objects; - is standard input (repeatable)")
	f.lists = map[string]*string{}
	for _, l := range listFlags {
		f.lists[l.flag] = fs.StringP(l.flag, l.short, "", "file of "+l.what+", as save writes it")
	}
	f.net.register(fs)
	fs.BoolVar(&f.prune, "prune", false, "delete objects missing from the files, of the kinds they contain; never deletes objects managed by a controller")
	fs.StringSliceVar(&f.kinds, "prune-kinds", nil, "delete objects of these kinds that the files do not contain: all, or a list such as lb,ep")
	cmd.Annotations = map[string]string{"prune": "--prune-kinds"} // see session.AsTyped
}

func (f *applyFlags) sources() (list []source) {
	for _, path := range f.files {
		list = append(list, source{path, ""})
	}
	for _, l := range listFlags {
		if path := f.lists[l.flag]; *path != "" {
			list = append(list, source{*path, l.kind})
		}
	}
	return list
}

// all returns all files to apply, in the order of the revision's description.
func (f *applyFlags) all() []source {
	list := f.sources()
	if path := f.net.path(); path != "" {
		list = append(list, source{path, ""})
	}
	return list
}

// run sends the objects of all files by one request.
func (f *applyFlags) run(ctx context.Context, o *session.Options, request v1.ApplyRequest) error {
	if err := f.net.check(); err != nil {
		return err
	}
	if len(f.all()) == 0 {
		return errors.New("no file given: use --file FILE")
	}
	objects, err := readObjects(o, f.sources())
	if err != nil {
		return err
	}
	interfaces, err := f.net.read()
	if err != nil {
		return err
	}
	objects = append(objects, interfaces...)
	request.Prune = f.kinds
	if f.prune {
		request.Prune = append(request.Prune, kindsOf(objects)...)
	}
	return sendObjects(ctx, o, objects, request)
}

// kindsOf returns the kinds of objects, each once.
func kindsOf(objects []manifest.Object) (list []string) {
	seen := map[string]bool{}
	for i := range objects {
		if k := objects[i].Kind; !seen[k] {
			seen[k] = true
			list = append(list, k)
		}
	}
	return list
}

// FileFlag adds the flag --file to a verb, and sends the files' objects.
func FileFlag(o *session.Options, cmd *cobra.Command, remove bool) func(*cobra.Command, []string) error {
	files := cmd.Flags().StringArrayP("file", "f", nil, "file or folder of objects; - is standard input (repeatable)")
	return func(cmd *cobra.Command, args []string) error {
		if len(*files) == 0 {
			return session.NeedObject(cmd, args)
		}
		var list []source
		for _, path := range *files {
			list = append(list, source{path, ""})
		}
		objects, err := readObjects(o, list)
		if err != nil {
			return err
		}
		return sendObjects(cmd.Context(), o, objects, v1.ApplyRequest{Remove: remove, Doing: describeSources(cmd.Name(), list)})
	}
}

// describeSources returns the revision's description.
func describeSources(verb string, list []source) string {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.path
	}
	text := []rune(verb + " -f " + strings.Join(names, " "))
	return string(text[:min(len(text), 200)])
}

// sendObjects applies objects on the server, and prints the result.
func sendObjects(ctx context.Context, o *session.Options, objects []manifest.Object, request v1.ApplyRequest) error {
	request.Objects = make([]v1.Object, len(objects))
	for i := range objects {
		request.Objects[i] = v1.Object{Kind: objects[i].Kind, Metadata: objects[i].Metadata, Spec: objects[i].Spec}
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	client, err := o.Client()
	if err != nil {
		return err
	}
	answer, err := o.Answer(client.ApplyObjectsWithBody(ctx, "application/json", bytes.NewReader(body)))
	if err != nil {
		return located(objects, answer, err)
	}
	if request.Confirm > 0 && !request.DryRun {
		return printConfirmable(o, answer)
	}
	return printResult(o, answer, request.DryRun)
}

// located adds the file and position to each error of an answer.
func located(objects []manifest.Object, answer []byte, err error) error {
	var e v1.Error
	if json.Unmarshal(answer, &e) != nil || len(e.Errors) == 0 {
		return err
	}
	wrong := make(manifest.Errors, 0, len(e.Errors))
	for _, one := range e.Errors {
		if one.Index < 0 || one.Index >= len(objects) {
			return err
		}
		text := one.Message
		if one.Other != nil && *one.Other >= 0 && *one.Other < len(objects) {
			text += ", also at " + objects[*one.Other].Position().String()
		}
		wrong = append(wrong, manifest.Error{Position: objects[one.Index].Locate(one.Field), Text: text})
	}
	head := "nothing was changed"
	if !strings.HasPrefix(e.Message, head) { // the change was rolled back where possible
		head, _, _ = strings.Cut(e.Message, ": objects[")
	}
	return session.Refused("%s:\n%w", head, wrong)
}

// printConfirmable is printResult for an apply that needs confirmation. Without a change, there is
// nothing to confirm.
func printConfirmable(o *session.Options, answer []byte) error {
	var r v1.ApplyResult
	if err := session.Decode(answer, &r); err != nil {
		return err
	}
	if len(r.Changes) == 0 && !o.IsRaw() {
		return o.Print("unchanged: there is no change to confirm\n")
	}
	return printResult(o, answer, false)
}

// printResult prints a summary of the changes; for a plan, all changes.
func printResult(o *session.Options, answer []byte, plan bool) error {
	var r v1.ApplyResult
	if err := session.Decode(answer, &r); err != nil {
		return err
	}
	if plan {
		return printPlan(o, answer, &r)
	}
	if o.IsRaw() {
		return o.PrintRaw(answer)
	}
	if len(r.Changes) == 0 {
		return o.Print("unchanged\n")
	}
	text := fmt.Sprintf("success: revision %d: %s\n", r.Revision, countChanges(&r, "added", "changed", "removed"))
	for _, k := range r.Kept {
		text += "left as it is, as a controller manages it: " + k + "\n"
	}
	for _, note := range r.Notes {
		text += note + "\n"
	}
	if r.Confirm != nil {
		text += fmt.Sprintf("Rolls back at %s unless you run: loxicmd confirm\n", r.Confirm.Local().Format(time.TimeOnly))
	}
	return o.Print(text)
}

// countChanges describes the number of changes.
func countChanges(r *v1.ApplyResult, add, change, remove string) string {
	count := map[string]int{}
	for _, c := range r.Changes {
		count[c.Action]++
	}
	text := fmt.Sprintf("%d %s, %d %s, %d %s", count["add"], add, count["change"], change, count["remove"], remove)
	if r.Unchanged > 0 {
		text += fmt.Sprintf(", %d unchanged", r.Unchanged)
	}
	return text
}

// PlanName is the name of the command whose exit code reports changes.
const PlanName = "plan"

// ErrPlanned ends plan if there are changes.
type ErrPlanned struct{}

func (ErrPlanned) Error() string { return "" }

func printPlan(o *session.Options, answer []byte, r *v1.ApplyResult) error {
	if o.IsRaw() {
		if err := o.PrintRaw(answer); err != nil {
			return err
		}
	} else if err := o.Print(planText(r)); err != nil {
		return err
	}
	if len(r.Changes) > 0 {
		return ErrPlanned{}
	}
	return nil
}

func planText(r *v1.ApplyResult) string {
	var b strings.Builder
	var cut uint64
	for _, who := range r.Cuts {
		b.WriteString("! firewall rules cut " + who + "\n")
	}
	for _, c := range r.Changes {
		sign := map[string]string{"add": "+", "change": "~", "remove": "-"}[c.Action]
		fmt.Fprintf(&b, "%s %s %s", sign, c.Kind, c.Name)
		if c.Pruned {
			b.WriteString(", which is not in the files")
		}
		if c.Connections > 0 {
			fmt.Fprintf(&b, ": cuts %d of %d live connections", c.Cut, c.Connections)
		}
		b.WriteString("\n")
		writeFields(&b, fieldsInWords(c.Kind, c.Fields))
		if c.MoreFields > 0 {
			fmt.Fprintf(&b, "    and %d more\n", c.MoreFields)
		}
		if c.Warning != "" {
			fmt.Fprintf(&b, "    WARNING: %s\n", c.Warning)
		}
		cut += c.Cut
	}
	for _, k := range r.Kept {
		fmt.Fprintf(&b, "  %s is kept: managed by a controller\n", k)
	}
	if len(r.Changes) == 0 {
		return b.String() + "nothing to do\n"
	}
	b.WriteString(countChanges(r, "to add", "to change", "to remove"))
	switch cut {
	case 0:
		b.WriteString("; cuts no live connection")
	case 1:
		b.WriteString("; cuts 1 live connection")
	default:
		fmt.Fprintf(&b, "; cuts %d live connections", cut)
	}
	if r.RuleCut > 0 {
		fmt.Fprintf(&b, ", firewall rules would end %d", r.RuleCut)
	}
	for _, note := range r.Notes {
		b.WriteString("\n" + note)
	}
	return b.String() + "\n"
}

// writeFields writes a line for each property, and one for an added or removed endpoint.
func writeFields(b *strings.Builder, fields []v1.FieldChange) {
	for len(fields) > 0 {
		element, n := elementOf(fields[0].Field), 1
		for element != "" && n < len(fields) && elementOf(fields[n].Field) == element {
			n++
		}
		if is := func(f v1.FieldChange) bool { return f.Field == element+".endpointIP" }; slices.ContainsFunc(fields[:n], is) {
			writeEndpoint(b, element, fields[:n])
		} else {
			for _, f := range fields[:n] {
				fmt.Fprintf(b, "    %s: %s -> %s\n", f.Field, orNone(f.Before), orNone(f.After))
			}
		}
		fields = fields[n:]
	}
}

// elementOf returns the list element that has a property, such as endpoints[10.0.0.1 80], or "".
func elementOf(field string) string {
	element, _, found := strings.Cut(field, "].")
	if !found {
		return ""
	}
	return element + "]"
}

// writeEndpoint writes the properties of an endpoint except its address and port, which are its
// name.
func writeEndpoint(b *strings.Builder, name string, fields []v1.FieldChange) {
	sign, rest := "+", []string(nil)
	for _, f := range fields {
		switch short := strings.TrimPrefix(f.Field, name+"."); {
		case short == "endpointIP" && f.After == "":
			sign = "-"
		case short != "endpointIP" && short != "targetPort":
			rest = append(rest, short+" "+f.Before+f.After)
		}
	}
	fmt.Fprintf(b, "    %s %s: %s\n", sign, name, strings.Join(rest, ", "))
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
