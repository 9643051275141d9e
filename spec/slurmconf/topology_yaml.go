package slurmconf

import (
	"bytes"
	"io/fs"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// topology.yaml describes one topology or several by name:
//
//	- topology: main
//	  cluster_default: true
//	  block:
//	    block_sizes: [4, 16]
//	    blocks:
//	      - block: b1
//	        nodes: node[1-4]
//
// What it says becomes the records that topology.conf would have. Where the
// file is there it counts, whatever TopologyPlugin says.

// yamlTopology takes the topologies of a topology.yaml: the cluster's is the one
// that is marked, else the first.
func (c *Cluster) yamlTopology(fsys fs.FS, name string) Problems {
	var ps Problems
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		ps.addProblem(Setting{File: name}, Error, "%v", err)
		return ps
	}
	root := parseYAML(name, data, &ps)
	if ps.Err() != nil {
		return ps
	}
	var entries []*yamlNode
	switch {
	case root == nil:
	case root.pairs != nil:
		entries = []*yamlNode{root}
	default:
		entries = root.list
	}
	if len(entries) == 0 {
		ps.addProblem(Setting{File: name}, Error, "it names no topology")
		return ps
	}
	main := 0
	for i, e := range entries {
		if d := e.get("cluster_default"); d != nil && strings.EqualFold(d.text, "true") {
			main = i
		}
	}
	var all []spec.Topology
	for i, e := range entries {
		t, more := c.oneTopology(e)
		if i != main { // of nodes that one has not another may know
			more = more.AtLeast(Error)
		}
		ps = append(ps, more...)
		switch {
		case t.Name == "" && len(entries) > 1:
			ps.addProblem(e.at, Error, "of several topologies each has a name (topology:)")
		case slices.ContainsFunc(all, func(o spec.Topology) bool { return o.Name == t.Name }):
			ps.addProblem(e.at, Error, "topology %s is there twice", quoteShort(t.Name))
		}
		all = append(all, t)
	}
	cfg, t := &c.Config, all[main]
	cfg.TopologyName, cfg.Topology, cfg.Blocks, cfg.BlockSizes = t.Name, t.Switches, t.Blocks, t.Sizes
	all = slices.Delete(all, main, main+1)
	if len(all) > 0 {
		cfg.Topologies = all
	}
	return ps
}

// oneTopology reads an entry of a topology.yaml.
func (c *Cluster) oneTopology(e *yamlNode) (t spec.Topology, ps Problems) {
	if n := e.get("topology"); n != nil {
		t.Name = n.text
	}
	e.refuseOthers(&ps, "topology", "cluster_default", "tree", "block", "flat")
	var recs []Record
	switch tree, block, flat := e.get("tree"), e.get("block"), e.get("flat"); {
	case (tree != nil && block != nil) || (flat != nil && (tree != nil || block != nil)):
		ps.addProblem(e.at, Error, "a topology is one of tree, block and flat")
	case tree != nil:
		tree.refuseOthers(&ps, "switches")
		recs = yamlRecords(e.at, tree.get("switches"), map[string]string{"switch": "SwitchName", "children": "Switches", "nodes": "Nodes"}, &ps)
		if ps.Err() == nil {
			t.Switches, ps = settleTree(recs, c.Config.Nodes, ps)
		}
	case block != nil:
		block.refuseOthers(&ps, "block_sizes", "blocks")
		recs = yamlRecords(e.at, block.get("blocks"), map[string]string{"block": "BlockName", "nodes": "Nodes"}, &ps)
		if sizes := block.get("block_sizes"); sizes != nil {
			recs = append(recs, Record{sizes.asSetting("BlockSizes")})
		}
		if ps.Err() == nil {
			t.Blocks, t.Sizes, ps = settleBlocks(recs, c.Config.Nodes, ps)
		}
	case flat == nil:
		ps.addProblem(e.at, Error, "a topology is a tree, block or flat: others are not supported")
	}
	return t, ps
}

// yamlRecords makes a record of each entry of a list, its keys renamed.
func yamlRecords(at Setting, list *yamlNode, keys map[string]string, ps *Problems) []Record {
	if list == nil || len(list.list) == 0 {
		ps.addProblem(at, Error, "a tree has a list of switches, a block topology one of blocks")
		return nil
	}
	var out []Record
	for _, e := range list.list {
		var rec Record
		for _, p := range e.pairs {
			key, ok := keys[p.key]
			if !ok {
				ps.addProblem(p.value.at, Error, "%s is not known here", quoteShort(p.key))
				continue
			}
			rec = append(rec, p.value.asSetting(key))
		}
		if rec == nil {
			ps.addProblem(e.at, Error, "this entry has no keys")
			continue
		}
		out = append(out, rec)
	}
	return out
}

// yamlNode is a value of a YAML file: a text, a list or pairs.
type yamlNode struct {
	at    Setting
	text  string
	list  []*yamlNode
	pairs []yamlPair
}

type yamlPair struct {
	key   string
	value *yamlNode
}

// refuseOthers refuses keys other than those given.
func (n *yamlNode) refuseOthers(ps *Problems, keys ...string) {
	for _, p := range n.pairs {
		if !slices.Contains(keys, p.key) {
			ps.addProblem(p.value.at, Error, "%s is not known here", quoteShort(p.key))
		}
	}
}

func (n *yamlNode) get(key string) *yamlNode {
	if n != nil {
		for _, p := range n.pairs {
			if p.key == key {
				return p.value
			}
		}
	}
	return nil
}

// asSetting is a text, or a list of texts, as the value of a key.
func (n *yamlNode) asSetting(key string) Setting {
	s := n.at
	s.Key, s.Value = key, n.text
	var items []string
	for _, e := range n.list {
		items = append(items, e.text)
	}
	if items != nil {
		s.Value = strings.Join(items, ",")
	}
	return s
}

// yamlLine is a line with something on it.
type yamlLine struct {
	n, indent int
	text      string
}

// yamlReader reads the part of YAML that such files use: maps, lists, texts
// and [a, b]. Anything else is refused.
type yamlReader struct {
	file  string
	lines []yamlLine
	ps    *Problems
	depth int
}

const maxYAMLDepth = 16

func parseYAML(file string, data []byte, ps *Problems) *yamlNode {
	r := &yamlReader{file: file, ps: ps}
	n := 0
	for raw := range bytes.Lines(data) {
		n++
		text := strings.TrimRight(string(raw), " \r\n")
		if strings.Contains(text, "\t") {
			ps.addProblem(Setting{File: file, Line: n}, Error, "tabs are not read here: indent with blanks")
			return nil
		}
		if i := strings.Index(" "+text, " #"); i >= 0 {
			text = strings.TrimRight(text[:i], " ")
		}
		if body := strings.TrimLeft(text, " "); body != "" && body != "---" {
			r.lines = append(r.lines, yamlLine{n, len(text) - len(body), body})
		}
	}
	if len(r.lines) == 0 {
		return nil
	}
	root := r.readBlock(r.lines[0].indent)
	if len(r.lines) > 0 && ps.Err() == nil {
		r.bad(r.lines[0], "it is indented otherwise than what it follows")
	}
	return root
}

func (r *yamlReader) bad(l yamlLine, why string) { r.ps.addProblem(r.where(l), Error, "%s", why) }

func (r *yamlReader) where(l yamlLine) Setting { return Setting{File: r.file, Line: l.n} }

// readBlock reads the lines of one indentation.
func (r *yamlReader) readBlock(indent int) *yamlNode {
	n := &yamlNode{at: r.where(r.lines[0])}
	r.depth++
	if r.depth > maxYAMLDepth {
		r.bad(r.lines[0], "it is nested too deeply")
		r.lines = nil
		return n
	}
	defer func() { r.depth-- }()
	for len(r.lines) > 0 && r.lines[0].indent == indent && r.ps.Err() == nil {
		l := r.lines[0]
		if item, ok := strings.CutPrefix(l.text+" ", "- "); ok {
			item = strings.TrimSpace(item)
			if item == "" {
				r.bad(l, "the value of - stands on the same line")
				return n
			}
			deep := indent + len(l.text) - len(item)
			r.lines[0] = yamlLine{l.n, deep, item}
			if _, _, isMap := yamlKey(item); isMap {
				n.list = append(n.list, r.readBlock(deep))
			} else {
				r.lines = r.lines[1:]
				n.list = append(n.list, r.readScalar(l, item))
			}
			continue
		}
		key, rest, ok := yamlKey(l.text)
		if !ok || n.list != nil {
			r.bad(l, "this is neither key: value nor an entry of the list")
			return n
		}
		if n.get(key) != nil {
			r.bad(l, "the key is there twice")
			return n
		}
		r.lines = r.lines[1:]
		var value *yamlNode
		switch {
		case rest != "":
			value = r.readScalar(l, rest)
		case len(r.lines) > 0 && (r.lines[0].indent > indent || (r.lines[0].indent == indent && strings.HasPrefix(r.lines[0].text, "- "))):
			value = r.readNested(indent)
		default:
			value = &yamlNode{at: r.where(l)}
		}
		n.pairs = append(n.pairs, yamlPair{key, value})
	}
	return n
}

// readNested reads what belongs to a key: deeper lines, or a list that is not
// indented further.
func (r *yamlReader) readNested(indent int) *yamlNode {
	if r.lines[0].indent > indent {
		return r.readBlock(r.lines[0].indent)
	}
	n := &yamlNode{at: r.where(r.lines[0])}
	for len(r.lines) > 0 && r.lines[0].indent == indent && strings.HasPrefix(r.lines[0].text, "- ") && r.ps.Err() == nil {
		l := r.lines[0]
		item := strings.TrimSpace(l.text[2:])
		deep := indent + len(l.text) - len(item)
		r.lines[0] = yamlLine{l.n, deep, item}
		if _, _, isMap := yamlKey(item); isMap {
			n.list = append(n.list, r.readBlock(deep))
			continue
		}
		r.lines = r.lines[1:]
		n.list = append(n.list, r.readScalar(l, item))
	}
	return n
}

// yamlKey takes "key: value" and "key:" apart.
func yamlKey(text string) (key, rest string, ok bool) {
	i := strings.Index(text+" ", ": ")
	if i <= 0 || strings.ContainsAny(text[:1], "\"'[{") {
		return "", "", false
	}
	return strings.ToLower(strings.TrimSpace(text[:i])), strings.TrimSpace((text + " ")[i+1:]), true
}

// readScalar reads a text, perhaps in quotes, or [a, b].
func (r *yamlReader) readScalar(l yamlLine, text string) *yamlNode {
	n := &yamlNode{at: r.where(l)}
	first, last := text[0], text[len(text)-1]
	switch {
	case (first == '"' || first == '\'') && len(text) > 1 && last == first:
		n.text = text[1 : len(text)-1]
	case first == '[' && last == ']':
		for item := range strings.SplitSeq(text[1:len(text)-1], ",") {
			item = strings.Trim(strings.TrimSpace(item), "\"'")
			if item != "" {
				n.list = append(n.list, &yamlNode{at: n.at, text: item})
			}
		}
	case strings.ContainsRune("\"'[{&*!|>%@`", rune(first)):
		r.bad(l, "this kind of value is not read here")
	default:
		n.text = text
	}
	return n
}
