package diagnose

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

// topOptions are the flags of top.
type topOptions struct {
	session    *session.Options
	sort       string
	match      string
	limit      int
	iterations int
	once       bool
	batch      bool
}

func topCommand(o *session.Options) *cobra.Command {
	t := &topOptions{session: o}
	cmd := &cobra.Command{
		Use:   "top [SERVICE]",
		Short: "Watch the rates of services and endpoints",
		Long: "Shows connections, packets and bits per second: in total, per service and per endpoint. It also\n" +
			"shows endpoints that are up, repeated SYNs, failed handshakes and dropped packets. The server\n" +
			"sorts, filters and sends only what fits the screen. Press ? for keys and columns. SERVICE is any\n" +
			"part of a key or name. Without a terminal, top behaves as with --once.",
		Example: "  loxicmd top\n  loxicmd top web --sort=failedHandshakes\n  loxicmd top --once\n  loxicmd top -b -n 10 --limit=5",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				t.match = args[0]
			}
			return t.run(cmd.Context())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&t.sort, "sort", "connections", "sort by a rate, largest first: "+orders+"; or by key or name")
	fs.BoolVar(&t.once, "once", false, "print once, for pipes")
	fs.BoolVarP(&t.batch, "batch", "b", false, "print every second, for pipes")
	fs.IntVarP(&t.iterations, "iterations", "n", 0, "with --batch: print N times; 0 prints until interrupted")
	fs.IntVar(&t.limit, "limit", 20, "with --batch and --once: show at most N services; 0 is the maximum, 1000")
	return cmd
}

// maxServices is the largest number of services in the server's update.
const maxServices = 1000

func (t *topOptions) run(ctx context.Context) error {
	if err := errors.Join(session.AtLeast(0, "limit", t.limit), session.AtLeast(0, "iterations", t.iterations), checkSort(t.sort)); err != nil {
		return err
	}
	if t.limit > maxServices {
		return fmt.Errorf("--limit %d is out of range (allowed: 0 to %d)", t.limit, maxServices)
	}
	if t.once && t.iterations > 1 {
		return errors.New("--once cannot be combined with --iterations")
	}
	out, in := terminal(t.session.Env.Stdout), terminal(t.session.Env.Stdin)
	if t.batch || t.once || t.session.IsRaw() || out == nil || in == nil {
		return t.print(ctx)
	}
	feeding, stop := context.WithCancel(ctx)
	defer stop()
	m := newModel(&feed{session: t.session, ctx: feeding}, t.sort, t.match, localGlyphs(os.Getenv))
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out))
	m.send = func(n queryResult) { p.Send(n) }
	if _, err := p.Run(); err != nil && ctx.Err() == nil && !errors.Is(err, tea.ErrInterrupted) {
		return session.Refused("cannot use the terminal: %w", err)
	}
	return m.failed
}

// terminal returns f as a file if it is a terminal, otherwise nil.
func terminal(f any) *os.File {
	if file, ok := f.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}

// localGlyphs returns the glyphs that the terminal can show, according to the environment.
func localGlyphs(env func(string) string) glyphs {
	for _, name := range [...]string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(env(name)); v != "" {
			if strings.Contains(v, "utf-8") || strings.Contains(v, "utf8") {
				return utf8Glyphs()
			}
			break
		}
	}
	return asciiGlyphs()
}

// print writes updates one after the other.
func (t *topOptions) print(ctx context.Context) error {
	times := t.iterations
	if !t.batch {
		times = 1
	}
	v := view{glyphs: localGlyphs(os.Getenv), plain: true, width: narrow, sort: t.sort}
	printed := 0
	err := follow(ctx, t.session, v1.WatchRatesParams{Sort: t.sort, Match: t.match, Limit: t.limit}, func(u *v1.RatesUpdate) error {
		if err := noMatch(t.match, u.List.Matched); err != nil && printed == 0 {
			return err
		}
		if err := t.printOne(&v, u, printed); err != nil {
			return err
		}
		if printed++; printed == times {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (t *topOptions) printOne(v *view, u *v1.RatesUpdate, printed int) error {
	if t.session.IsRaw() {
		return t.session.PrintRaw(session.Raw(u))
	}
	v.remember(u)
	var b strings.Builder
	if printed > 0 {
		b.WriteByte('\n')
	}
	l := newLayout(v.width, v.visibleColumns())
	list := rateLines(u, "")
	for _, one := range list {
		l.key = max(l.key, len(one.key))
	}
	for _, text := range v.heads(u) {
		b.WriteString(text + "\n")
	}
	b.WriteString("\n" + v.heading(l) + "\n")
	for i := range list {
		b.WriteString(v.row(l, &list[i], false) + "\n")
	}
	if more := u.List.Matched - len(list); more > 0 {
		fmt.Fprintf(&b, " and %d more\n", more)
	}
	return t.session.Print(b.String())
}
