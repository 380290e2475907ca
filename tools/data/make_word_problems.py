"""Makes the word problems of configs/data/word_problems: short arithmetic questions with worked answers.

    python3 tools/data/make_word_problems.py [folder]           (default: configs/data/word_problems)
    python3 tools/data/make_word_problems.py --check [folder]   (exit code 1 where the files are not what it would write)

Writes train.jsonl and test.jsonl with rows {"question", "answer"}; an answer works in steps and ends in a line `#### N`. The
seed is fixed and only the standard library is used, so the files are the same bytes on every machine. No question of the
test set is in the training set.
"""
import random

import generated_rows

SEED = 20260101
TRAIN_ROWS, TEST_ROWS = 3000, 300

NAMES = ["Ada", "Amir", "Bea", "Carlos", "Chen", "Dana", "Elif", "Femi", "Greta", "Hugo", "Ines", "Ivan", "Jonas", "Kira", "Lena",
         "Luca", "Mara", "Nadia", "Noah", "Olga", "Pavel", "Priya", "Rosa", "Sami", "Tara", "Tom", "Uma", "Viktor", "Yara", "Zoe"]
TOWNS = ["Oslo", "Turin", "Lyon", "Ghent", "Porto", "Graz", "Brno", "Cork", "Basel", "Malmo"]
GOODS = [("notebook", "notebooks"), ("pencil", "pencils"), ("mug", "mugs"), ("candle", "candles"), ("melon", "melons"),
         ("poster", "posters"), ("puzzle", "puzzles"), ("scarf", "scarves"), ("lamp", "lamps"), ("plant", "plants")]
SHOPS = ["the market", "a corner shop", "the school fair", "a garden centre", "the station kiosk"]
FOODS = [("pancake", "pancakes", "g of flour"), ("bowl of soup", "bowls of soup", "ml of broth"), ("muffin", "muffins", "g of sugar"),
         ("smoothie", "smoothies", "ml of milk"), ("pizza", "pizzas", "g of dough")]
FRACTIONS = [(1, 2, "half"), (1, 3, "a third"), (1, 4, "a quarter"), (1, 5, "a fifth"), (2, 3, "two thirds"), (3, 4, "three quarters"),
             (2, 5, "two fifths"), (3, 5, "three fifths")]


def two(rng, items):
    return rng.sample(items, 2)


def shopping(rng):
    name, (one, many), shop = rng.choice(NAMES), rng.choice(GOODS), rng.choice(SHOPS)
    count, price = rng.randint(3, 12), rng.randint(2, 15)
    total = count * price
    paid = total + rng.randint(1, 40)
    question = rng.choice([
        f"{name} buys {count} {many} at {shop}. Each {one} costs {price} dollars. {name} pays with {paid} dollars. How many dollars does {name} get back?",
        f"At {shop} a {one} costs ${price}. {name} takes {count} of them and hands over ${paid}. How much change, in dollars, should {name} receive?"])
    return question, [f"The {many} cost {count} * {price} = {total} dollars.", f"The change is {paid} - {total} = {paid - total} dollars."], paid - total


def two_goods(rng):
    name, ((one_a, many_a), (one_b, many_b)) = rng.choice(NAMES), two(rng, GOODS)
    a, b, price_a, price_b = rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 12), rng.randint(2, 12)
    question = (f"{name} needs {a} {many_a} at ${price_a} apiece and {b} {many_b} at ${price_b} apiece. "
                + rng.choice(["How many dollars does everything cost?", f"What does {name} pay in total, in dollars?"]))
    return question, [f"The {many_a} cost {a} * {price_a} = {a * price_a} dollars.", f"The {many_b} cost {b} * {price_b} = {b * price_b} dollars.",
                      f"Together that is {a * price_a} + {b * price_b} = {a * price_a + b * price_b} dollars."], a * price_a + b * price_b


def discount(rng):
    name, (one, _) = rng.choice(NAMES), rng.choice(GOODS)
    percent = rng.choice([10, 20, 25, 30, 40, 50])
    price = 20 * rng.randint(2, 20)
    off = price * percent // 100
    question = rng.choice([
        f"A {one} costs ${price}, but today everything is {percent}% cheaper. How many dollars does {name} pay for it?",
        f"{name} finds a {one} with a price of {price} dollars and a {percent} percent discount. What is the reduced price in dollars?"])
    return question, [f"The discount is {price} * {percent} / 100 = {off} dollars.", f"The reduced price is {price} - {off} = {price - off} dollars."], price - off


def travel(rng):
    (a, b), name = two(rng, TOWNS), rng.choice(NAMES)
    speed, hours, more_speed, more_hours = 5 * rng.randint(6, 22), rng.randint(1, 5), 5 * rng.randint(4, 20), rng.randint(1, 4)
    first, second = speed * hours, more_speed * more_hours
    question = (f"{name} travels from {a} to {b}. For {hours} hour{'s' * (hours > 1)} the bus drives at {speed} km per hour, then for "
                f"{more_hours} hour{'s' * (more_hours > 1)} at {more_speed} km per hour. "
                + rng.choice(["How many kilometres is the whole trip?", "How far, in kilometres, does the bus drive?"]))
    return question, [f"The first part is {speed} * {hours} = {first} km.", f"The second part is {more_speed} * {more_hours} = {second} km.",
                      f"The whole trip is {first} + {second} = {first + second} km."], first + second


def travel_time(rng):
    name, town = rng.choice(NAMES), rng.choice(TOWNS)
    speed, hours, pause = rng.randint(8, 30), rng.randint(2, 6), 5 * rng.randint(2, 12)
    distance = speed * hours
    question = (f"{name} cycles {distance} km to {town} at {speed} km per hour and rests for {pause} minutes on the way. "
                "How many minutes does the journey take, rest included?")
    return question, [f"Riding takes {distance} / {speed} = {hours} hours.", f"That is {hours} * 60 = {hours * 60} minutes.",
                      f"With the rest it takes {hours * 60} + {pause} = {hours * 60 + pause} minutes."], hours * 60 + pause


def ages(rng):
    a, b = two(rng, NAMES)
    age, times, years = rng.randint(4, 15), rng.randint(2, 4), rng.randint(2, 12)
    older = age * times
    question = rng.choice([
        f"{a} is {age} years old and {b} is {times} times as old. How old will {b} be in {years} years?",
        f"{b}'s age is {times} times the age of {a}, who is {age}. What will {b}'s age be {years} years from now?"])
    return question, [f"{b} is {age} * {times} = {older} years old now.", f"In {years} years {b} will be {older} + {years} = {older + years}."], older + years


def ages_sum(rng):
    a, b, c = rng.sample(NAMES, 3)
    age, older, younger = rng.randint(8, 30), rng.randint(1, 9), rng.randint(1, 7)
    total = age + age + older + age - younger
    question = (f"{a} is {age}. {b} is {older} year{'s' * (older > 1)} older than {a}, and {c} is {younger} year{'s' * (younger > 1)} younger than {a}. "
                "What do their three ages add up to?")
    return question, [f"{b} is {age} + {older} = {age + older}.", f"{c} is {age} - {younger} = {age - younger}.",
                      f"Together they are {age} + {age + older} + {age - younger} = {total}."], total


def rates(rng):
    name, (_, many) = rng.choice(NAMES), rng.choice(GOODS)
    per_hour, hours, broken = rng.randint(6, 40), rng.randint(2, 9), rng.randint(1, 11)
    made = per_hour * hours
    question = (f"A machine packs {per_hour} {many} an hour and runs for {hours} hours. {name} then sorts out {broken} damaged one{'s' * (broken > 1)}. "
                + rng.choice([f"How many good {many} are left?", f"How many {many} can be sold?"]))
    return question, [f"The machine packs {per_hour} * {hours} = {made} {many}.", f"Without the damaged ones {made} - {broken} = {made - broken} are left."], made - broken


def wages(rng):
    name = rng.choice(NAMES)
    hourly, hours, days, spent = rng.randint(9, 25), rng.randint(2, 8), rng.randint(2, 6), rng.randint(10, 90)
    a_day = hourly * hours
    total = a_day * days
    spent = min(spent, total - 1)
    question = (f"{name} earns {hourly} dollars an hour and works {hours} hours on each of {days} days. Afterwards {name} spends {spent} dollars. "
                "How many dollars remain?")
    return question, [f"A day brings {hourly} * {hours} = {a_day} dollars.", f"{days} days bring {a_day} * {days} = {total} dollars.",
                      f"What remains is {total} - {spent} = {total - spent} dollars."], total - spent


def fractions(rng):
    name, (_, many) = rng.choice(NAMES), rng.choice(GOODS)
    top, bottom, words = rng.choice(FRACTIONS)
    part = rng.randint(3, 24)
    count = part * bottom
    given = part * top
    question = rng.choice([
        f"{name} has {count} {many} and gives away {words} of them. How many {many} does {name} keep?",
        f"Of the {count} {many} in a crate, {words} are sold by noon. How many {many} are still there?"])
    steps = [f"{words.capitalize()} of {count} is {count} / {bottom} = {part}."] if top == 1 else [
        f"One part of {bottom} is {count} / {bottom} = {part}.", f"{words.capitalize()} is {part} * {top} = {given}."]
    return question, steps + [f"That leaves {count} - {given} = {count - given} {many}."], count - given


def recipe(rng):
    name, (one, many, unit) = rng.choice(NAMES), rng.choice(FOODS)
    each, people, apiece, have = 10 * rng.randint(3, 20), rng.randint(2, 9), rng.randint(1, 4), 50 * rng.randint(1, 8)
    pieces = people * apiece
    need = pieces * each
    have = min(have, need - 10)
    question = (f"A {one} takes {each} {unit}. {name} wants to make {apiece} for each of {people} guests and has {have} {unit} at home. "
                f"How many {unit.split()[0]} of {unit.split()[-1]} are missing?")
    return question, [f"{name} makes {apiece} * {people} = {pieces} {many if pieces > 1 else one}.", f"They take {pieces} * {each} = {need} {unit}.",
                      f"Missing are {need} - {have} = {need - have} {unit}."], need - have


def sharing(rng):
    name, (_, many) = rng.choice(NAMES), rng.choice(GOODS)
    friends, each, left = rng.randint(3, 9), rng.randint(3, 15), 0
    left = rng.randint(1, friends - 1)
    count = friends * each + left
    question = (f"{name} shares {count} {many} equally among {friends} friends, giving each as many as possible. "
                f"How many {many} are left over?")
    return question, [f"Each friend gets {each}, because {friends} * {each} = {friends * each}.",
                      f"Left over are {count} - {friends * each} = {left}."], left


def rectangle(rng):
    name, town = rng.choice(NAMES), rng.choice(TOWNS)
    length, width, cost = rng.randint(5, 30), rng.randint(3, 20), rng.randint(2, 9)
    around = 2 * (length + width)
    question = (f"{name} puts a fence around a garden in {town} that is {length} m long and {width} m wide. A metre of fence costs {cost} dollars. "
                "How many dollars does the fence cost?")
    return question, [f"Length and width are {length} + {width} = {length + width} m.", f"The fence is 2 * {length + width} = {around} m long.",
                      f"It costs {around} * {cost} = {around * cost} dollars."], around * cost


def savings(rng):
    name, (one, _) = rng.choice(NAMES), rng.choice(GOODS)
    weekly, weeks, have = rng.randint(3, 20), rng.randint(3, 15), rng.randint(5, 60)
    price = have + weekly * weeks
    question = (f"{name} is saving for a {one} that costs {price} dollars. There are {have} dollars in the box already and {weekly} more come in every week. "
                "After how many weeks is there enough?")
    return question, [f"Still needed are {price} - {have} = {price - have} dollars.", f"That takes {price - have} / {weekly} = {weeks} weeks."], weeks


def average(rng):
    name, (_, many) = rng.choice(NAMES), rng.choice(GOODS)
    mean = rng.randint(8, 40)
    shifts = [rng.randint(-6, 6) for _ in range(3)]
    counts = [mean + shift for shift in shifts] + [mean - sum(shifts)]
    total = sum(counts)
    days = ["Monday", "Tuesday", "Wednesday", "Thursday"]
    listed = ", ".join(f"{count} on {day}" for count, day in zip(counts[:-1], days)) + f" and {counts[-1]} on {days[-1]}"
    question = f"{name} sells {listed}: all {many}. How many {many} is that per day on average?"
    return question, [f"In total {' + '.join(map(str, counts))} = {total} {many} are sold.", f"Over 4 days the average is {total} / 4 = {mean}."], mean


KINDS = [shopping, two_goods, discount, travel, travel_time, ages, ages_sum, rates, wages, fractions, recipe, sharing, rectangle,
         savings, average]


def rows():
    rng = random.Random(SEED)
    seen = set()
    while len(seen) < TRAIN_ROWS + TEST_ROWS:
        question, steps, result = KINDS[len(seen) % len(KINDS)](rng)
        if question in seen or result < 0:
            continue
        seen.add(question)
        yield {"question": question, "answer": "\n".join(steps + [f"#### {result}"])}


if __name__ == "__main__":
    generated_rows.main("tools/data/make_word_problems.py", rows(), TRAIN_ROWS, "configs/data/word_problems")
