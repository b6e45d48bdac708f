// Has speedscope read a profile, and prints as JSON what it made of it: for each profile its frames with their times, and when
// each call began and ended.
//
// speedscope is one script for browsers. All that it does when it is loaded is to draw its page, which is cut off here; what is
// left gives out the function that its page reads files with.
'use strict'
const fs = require('node:fs')
const path = require('node:path')

const [, , release, file] = process.argv
const name = fs.readdirSync(release).find(name => /^speedscope-\w+\.js$/.test(name))
const script = fs.readFileSync(path.join(release, name), 'utf8')
const reader = script.match(/async function (\w+)\(\w+,\w+\)\{return\(await \w+\)\.importProfilesFromArrayBuffer\(/)
const page = script.lastIndexOf('console.log(`speedscope v')
if (!reader || page < 0) throw new Error(`${name} is another speedscope than this script knows`)

// Standard output is for the answer.
console.log = console.error
globalThis.window = globalThis
globalThis.location = { hash: '', protocol: 'file:' }
globalThis.localStorage = {}
const read = (0, eval)(`${script.slice(0, page)}globalThis.read=${reader[1]}})(),globalThis.read`)

const shown = frame => ({
  name: frame.name,
  file: frame.file ?? null,
  line: frame.line ?? null,
  col: frame.col ?? null,
  self: frame.getSelfWeight(),
  total: frame.getTotalWeight(),
})
const described = profile => {
  const frames = []
  profile.forEachFrame(frame => frames.push(shown(frame)))
  const calls = []
  const event = kind => (node, at) => calls.push({ kind, name: node.frame.name, at })
  profile.forEachCall(event('begin'), event('end'))
  return { name: profile.getName(), unit: profile.getWeightUnit(), total: profile.getTotalWeight(), frames, calls }
}
const bytes = Uint8Array.from(fs.readFileSync(file))
read(path.basename(file), bytes.buffer).then(group => {
  if (!group) throw new Error(`${file} is no profile`)
  process.stdout.write(JSON.stringify({ name: group.name, profiles: group.profiles.map(described) }))
})
