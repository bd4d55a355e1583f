// Evaluates expressions with the JEXL of JavaScript. Standard input: {"names": {…}, "expressions": ["…"]}; standard
// output: the values as an array, with null for none. JEXL_HOME is where the package is installed.
//
// The grammar, the order of evaluation, and what operators do with values that fit are the library's. All in which
// Orion differs, and we with it, is in the first part of this file:
// - What fails is `undefined`: an operation with it, an array or object that holds it, and a function that is given it.
// - A member that is not there is null, not undefined.
// - Operators take values of one kind; values of two kinds are unlike, and have no order and no sum.
// - Numbers that differ by less than a millionth are equal; arrays and objects are equal if what they hold is.
// - `null` is a value, not a name; what is no finite number is null.
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'

const require = createRequire(process.env.JEXL_HOME + '/')
const { Jexl } = require('jexl')
const handlers = require('jexl/dist/evaluator/handlers')
const jexl = new Jexl()

const failed = undefined

/** The value with null for the members that it does not have. */
function lenient(value) {
  if (typeof value !== 'object' || value === null) return value
  for (const name of Object.keys(value)) value[name] = lenient(value[name])
  return new Proxy(value, { get: (target, name) => (typeof name !== 'string' || name in target ? target[name] : null) })
}

for (const literal of ['ArrayLiteral', 'ObjectLiteral']) {
  const original = handlers[literal]
  handlers[literal] = function (ast) {
    return original.call(this, ast).then((made) => (Object.values(made).includes(failed) ? failed : lenient(made)))
  }
}

const kind = (value) => (value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value)
const both = (name, left, right) => kind(left) === name && kind(right) === name
const finite = (number) => (typeof number === 'number' && !Number.isFinite(number) ? null : number)

function equal(left, right) {
  if (kind(left) !== kind(right)) return false
  if (kind(left) === 'number') return Math.abs(left - right) < 0.000001
  if (typeof left !== 'object' || left === null) return left === right
  const names = Object.keys(left)
  const count = Object.keys(right).length
  return names.length === count && names.every((name) => name in right && equal(left[name], right[name]))
}

/** Gives operators of the library operands that fit only. */
function restrict(operators, fits) {
  for (const operator of operators) {
    const { precedence, eval: original } = jexl._grammar.elements[operator]
    const restricted = (left, right) => (fits(left, right) ? finite(original(left, right)) : failed)
    jexl.addBinaryOp(operator, precedence, restricted)
  }
}

restrict(['-', '*', '/', '//', '%', '^'], (left, right) => both('number', left, right))
restrict(['+', '<', '<=', '>', '>='], (left, right) => both('number', left, right) || both('string', left, right))
const { precedence } = jexl._grammar.elements['==']
const known = (left, right) => left !== failed && right !== failed
jexl.addBinaryOp('==', precedence, (left, right) => (known(left, right) ? equal(left, right) : failed))
jexl.addBinaryOp('!=', precedence, (left, right) => (known(left, right) ? !equal(left, right) : failed))
jexl.addBinaryOp('in', precedence, (left, right) => {
  if (!known(left, right)) return failed
  if (both('string', left, right)) return right.includes(left)
  if (kind(left) === 'string' && kind(right) === 'object') return Object.keys(right).includes(left)
  if (kind(right) === 'array') return right.some((item) => equal(left, item))
  return both('number', left, right) ? false : failed
})

// The functions that JavaScript has as well.

/** Adds a function that takes values of these kinds; it is null for others, and fails with what failed. */
function add(name, kinds, evaluate) {
  jexl.addTransform(name, (...given) => {
    if (given.includes(failed)) return failed
    const fits = kinds.every((expected, at) => expected === 'any' || expected === kind(given[at] ?? null))
    return fits ? lenient(finite(evaluate(...given) ?? null)) : null
  })
}

const nineDecimals = (number) => Math.round(number * 1e9) / 1e9
const numbers = (items) => items.length > 0 && items.every((item) => kind(item) === 'number')
const figure = (name, evaluate) => add(name, ['array'], (items) => (numbers(items) ? evaluate([...items]) : null))
const sum = (items) => items.reduce((one, other) => one + other)

add('uppercase', ['string'], (text) => text.toUpperCase())
add('lowercase', ['string'], (text) => text.toLowerCase())
add('trim', ['string'], (text) => text.trim())
add('len', ['any'], (value) => (kind(value) === 'string' || kind(value) === 'array' ? value.length : null))
add('split', ['string', 'string'], (text, separator) => text.split(separator))
add('indexOf', ['string', 'string'], (text, part) => (text.includes(part) ? text.indexOf(part) : null))
add('substring', ['string', 'number', 'number'], (text, from, to) =>
  Number.isInteger(from) && Number.isInteger(to) && 0 <= from && from <= to && to <= text.length
    ? text.substring(from, to)
    : null
)
add('includes', ['string', 'string'], (text, part) => text.includes(part))
add('replaceStr', ['string', 'string', 'string'], (text, from, to) => text.replaceAll(from, () => to))
add('replaceRegex', ['string', 'string', 'string'], (text, pattern, to) =>
  text.replace(new RegExp(pattern, 'g'), () => to)
)
add('matchRegex', ['string', 'string'], (text, pattern) => text.match(new RegExp(pattern, 'g')) ?? [])
add('isNaN', ['any'], (value) => typeof value !== 'number')
add('parseFloat', ['any'], (value) => (/^[+-]?[0-9]+(\.[0-9]+)?$/.test(value) ? parseFloat(value) : null))
add('toText', ['any'], (value) => (typeof value === 'string' ? value : JSON.stringify(value)))
add('round', ['number'], (number) => Math.sign(number) * Math.round(Math.abs(number)))
add('floor', ['number'], Math.floor)
add('ceil', ['number'], Math.ceil)
add('toFixed', ['number', 'number'], (number, places) =>
  Number.isInteger(places) && 0 <= places && places <= 100 ? Number(number.toFixed(places)) : null
)
add('log', ['number'], (number) => nineDecimals(Math.log(number)))
add('log10', ['number'], (number) => nineDecimals(Math.log10(number)))
add('log2', ['number'], (number) => nineDecimals(Math.log2(number)))
add('sqrt', ['number'], Math.sqrt)
add('keys', ['object'], Object.keys)
add('values', ['object'], Object.values)
add('arrReverse', ['array'], (items) => [...items].reverse())
add('arrSort', ['array'], (items) =>
  items.length === 0 || numbers(items) ? [...items].sort((one, other) => one - other) : null
)
figure('arrSum', sum)
figure('arrAvg', (items) => sum(items) / items.length)
figure('arrMax', (items) => Math.max(...items))
figure('arrMin', (items) => Math.min(...items))
const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|\+00:00)$/i
add('getTime', ['string'], (text) => (time.test(text) ? Math.floor(Date.parse(text) / 1000) : null))
add('toIsoString', ['number'], (seconds) =>
  Math.abs(seconds) < 1e10 ? new Date(Math.floor(seconds) * 1000).toISOString().slice(0, 19) + '+00:00' : null
)

const { names, expressions } = JSON.parse(readFileSync(0, 'utf8'))
const context = lenient({ ...names, null: null })
const has = (name) => name === 'null' || name in names
const missing = new Proxy(context, { get: (target, name) => (has(name) ? target[name] : failed) })
const values = expressions.map((expression) => {
  try {
    return jexl.evalSync(expression, missing) ?? null
  } catch (error) {
    // Only what the grammar refuses may throw: all else is a value, or undefined.
    return { refused: String(error) }
  }
})
process.stdout.write(JSON.stringify(values))
