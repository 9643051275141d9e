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
	var problems Problems
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		problems.addProblem(Setting{File: name}, Error, "%v", err)
		return problems
	}
	root := parseYAML(name, data, &problems)
	if problems.Err() != nil {
		return problems
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
		problems.addProblem(Setting{File: name}, Error, "it names no topology")
		return problems
	}
	main := 0
	for i, node := range entries {
		if d := node.childOf("cluster_default"); d != nil && strings.EqualFold(d.text, "true") {
			main = i
		}
	}
	var all []spec.Topology
	for i, node := range entries {
		topology, more := c.oneTopology(node)
		if i != main { // of nodes that one has not another may know
			more = more.AtLeast(Error)
		}
		problems = append(problems, more...)
		switch {
		case topology.Name == "" && len(entries) > 1:
			problems.addProblem(node.at, Error, "of several topologies each has a name (topology:)")
		case slices.ContainsFunc(all, func(o spec.Topology) bool { return o.Name == topology.Name }):
			problems.addProblem(
				node.at,
				Error,
				"topology %s is there twice",
				quoteShort(topology.Name),
			)
		}
		all = append(all, topology)
	}
	config, topology := &c.Config, all[main]
	config.TopologyName = topology.Name
	config.Topology = topology.Switches
	config.Blocks = topology.Blocks
	config.BlockSizes = topology.Sizes
	all = slices.Delete(all, main, main+1)
	if len(all) > 0 {
		config.Topologies = all
	}
	return problems
}

// oneTopology reads an entry of a topology.yaml.
func (c *Cluster) oneTopology(node *yamlNode) (topology spec.Topology, problems Problems) {
	if n := node.childOf("topology"); n != nil {
		topology.Name = n.text
	}
	node.refuseOthers(&problems, "topology", "cluster_default", "tree", "block", "flat")
	var recs []Record
	tree := node.childOf("tree")
	block := node.childOf("block")
	flat := node.childOf("flat")
	switch {
	case moreThanOne(tree != nil, block != nil, flat != nil):
		problems.addProblem(node.at, Error, "a topology is one of tree, block and flat")
	case tree != nil:
		tree.refuseOthers(&problems, "switches")
		recs = yamlRecords(
			node.at,
			tree.childOf("switches"),
			map[string]string{"switch": "SwitchName", "children": "Switches", "nodes": "Nodes"},
			&problems,
		)
		if problems.Err() == nil {
			topology.Switches, problems = settleTree(recs, c.Config.Nodes, problems)
		}
	case block != nil:
		block.refuseOthers(&problems, "block_sizes", "blocks")
		recs = yamlRecords(
			node.at,
			block.childOf("blocks"),
			map[string]string{"block": "BlockName", "nodes": "Nodes"},
			&problems,
		)
		if sizes := block.childOf("block_sizes"); sizes != nil {
			recs = append(recs, Record{sizes.asSetting("BlockSizes")})
		}
		if problems.Err() == nil {
			topology.Blocks, topology.Sizes, problems = settleBlocks(recs, c.Config.Nodes, problems)
		}
	case flat == nil:
		problems.addProblem(
			node.at,
			Error,
			"a topology is a tree, block or flat: others are not supported",
		)
	}
	return topology, problems
}

// yamlRecords makes a record of each entry of a list, its keys renamed.
func yamlRecords(at Setting, list *yamlNode, keys map[string]string, problems *Problems) []Record {
	if list == nil || len(list.list) == 0 {
		problems.addProblem(
			at,
			Error,
			"a tree has a list of switches, a block topology one of blocks",
		)
		return nil
	}
	var records []Record
	for _, node := range list.list {
		var record Record
		for _, pair := range node.pairs {
			key, ok := keys[pair.key]
			if !ok {
				problems.addProblem(
					pair.value.at,
					Error,
					"%s is not known here",
					quoteShort(pair.key),
				)
				continue
			}
			record = append(record, pair.value.asSetting(key))
		}
		if record == nil {
			problems.addProblem(node.at, Error, "this entry has no keys")
			continue
		}
		records = append(records, record)
	}
	return records
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
func (n *yamlNode) refuseOthers(problems *Problems, keys ...string) {
	for _, pair := range n.pairs {
		if !slices.Contains(keys, pair.key) {
			problems.addProblem(pair.value.at, Error, "%s is not known here", quoteShort(pair.key))
		}
	}
}

func (n *yamlNode) childOf(key string) *yamlNode {
	if n != nil {
		for _, pair := range n.pairs {
			if pair.key == key {
				return pair.value
			}
		}
	}
	return nil
}

// asSetting is a text, or a list of texts, as the value of a key.
func (n *yamlNode) asSetting(key string) Setting {
	setting := n.at
	setting.Key, setting.Value = key, n.text
	var items []string
	for _, node := range n.list {
		items = append(items, node.text)
	}
	if items != nil {
		setting.Value = strings.Join(items, ",")
	}
	return setting
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

// maxYAMLDepth bounds the recursion: without it, a file of brackets would exhaust the stack.
const maxYAMLDepth = 16

func parseYAML(file string, data []byte, problems *Problems) *yamlNode {
	reader := &yamlReader{file: file, ps: problems}
	n := 0
	for raw := range bytes.Lines(data) {
		n++
		text := strings.TrimRight(string(raw), " \r\n")
		if strings.Contains(text, "\t") {
			problems.addProblem(
				Setting{File: file, Line: n},
				Error,
				"tabs are not read here: indent with blanks",
			)
			return nil
		}
		if i := strings.Index(" "+text, " #"); i >= 0 {
			text = strings.TrimRight(text[:i], " ")
		}
		if body := strings.TrimLeft(text, " "); body != "" && body != "---" {
			reader.lines = append(reader.lines, yamlLine{n, len(text) - len(body), body})
		}
	}
	if len(reader.lines) == 0 {
		return nil
	}
	root := reader.readBlock(reader.lines[0].indent)
	if len(reader.lines) > 0 && problems.Err() == nil {
		reader.addProblem(reader.lines[0], "it is indented otherwise than what it follows")
	}
	return root
}

func (r *yamlReader) addProblem(line yamlLine, reason string) {
	r.ps.addProblem(r.settingAt(line), Error, "%s", reason)
}

func (r *yamlReader) settingAt(line yamlLine) Setting { return Setting{File: r.file, Line: line.n} }

// readBlock reads the lines of one indentation.
func (r *yamlReader) readBlock(indent int) *yamlNode {
	node := &yamlNode{at: r.settingAt(r.lines[0])}
	r.depth++
	if r.depth > maxYAMLDepth {
		r.addProblem(r.lines[0], "it is nested too deeply")
		r.lines = nil
		return node
	}
	defer func() { r.depth-- }()
	for len(r.lines) > 0 && r.lines[0].indent == indent && r.ps.Err() == nil {
		line := r.lines[0]
		if item, ok := strings.CutPrefix(line.text+" ", "- "); ok {
			item = strings.TrimSpace(item)
			if item == "" {
				r.addProblem(line, "the value of - stands on the same line")
				return node
			}
			deep := indent + len(line.text) - len(item)
			r.lines[0] = yamlLine{line.n, deep, item}
			if _, _, isMap := yamlKey(item); isMap {
				node.list = append(node.list, r.readBlock(deep))
			} else {
				r.lines = r.lines[1:]
				node.list = append(node.list, r.readScalar(line, item))
			}
			continue
		}
		key, rest, ok := yamlKey(line.text)
		if !ok || node.list != nil {
			r.addProblem(line, "this is neither key: value nor an entry of the list")
			return node
		}
		if node.childOf(key) != nil {
			r.addProblem(line, "the key is there twice")
			return node
		}
		r.lines = r.lines[1:]
		var value *yamlNode
		switch {
		case rest != "":
			value = r.readScalar(line, rest)
		case len(r.lines) > 0 && (r.lines[0].indent > indent || (r.lines[0].indent == indent && strings.HasPrefix(r.lines[0].text, "- "))):
			value = r.readNested(indent)
		default:
			value = &yamlNode{at: r.settingAt(line)}
		}
		node.pairs = append(node.pairs, yamlPair{key, value})
	}
	return node
}

// readNested reads what belongs to a key: deeper lines, or a list that is not
// indented further.
func (r *yamlReader) readNested(indent int) *yamlNode {
	if r.lines[0].indent > indent {
		return r.readBlock(r.lines[0].indent)
	}
	node := &yamlNode{at: r.settingAt(r.lines[0])}
	for len(r.lines) > 0 && r.lines[0].indent == indent && strings.HasPrefix(r.lines[0].text, "- ") && r.ps.Err() == nil {
		line := r.lines[0]
		item := strings.TrimSpace(line.text[2:])
		deep := indent + len(line.text) - len(item)
		r.lines[0] = yamlLine{line.n, deep, item}
		if _, _, isMap := yamlKey(item); isMap {
			node.list = append(node.list, r.readBlock(deep))
			continue
		}
		r.lines = r.lines[1:]
		node.list = append(node.list, r.readScalar(line, item))
	}
	return node
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
func (r *yamlReader) readScalar(line yamlLine, text string) *yamlNode {
	node := &yamlNode{at: r.settingAt(line)}
	first, last := text[0], text[len(text)-1]
	switch {
	case (first == '"' || first == '\'') && len(text) > 1 && last == first:
		node.text = text[1 : len(text)-1]
	case first == '[' && last == ']':
		for item := range strings.SplitSeq(text[1:len(text)-1], ",") {
			item = strings.Trim(strings.TrimSpace(item), "\"'")
			if item != "" {
				node.list = append(node.list, &yamlNode{at: node.at, text: item})
			}
		}
	case strings.ContainsRune("\"'[{&*!|>%@`", rune(first)):
		r.addProblem(line, "this kind of value is not read here")
	default:
		node.text = text
	}
	return node
}

func moreThanOne(facts ...bool) bool {
	n := 0
	for _, fact := range facts {
		if fact {
			n++
		}
	}
	return n > 1
}
